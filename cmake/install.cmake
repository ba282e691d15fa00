# cmake --install: the binary with its documents (component gateway), and for other programs the client, the library of
# atomic phases and its workers (component library): an archive each, their headers, a CMake package (find_package(oncekey),
# targets oncekey::client, oncekey::phases, oncekey::workers) and a pkg-config file each.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/oncekey)
file(RELATIVE_PATH ONCEKEY_INCLUDE_FROM_LIB /${CMAKE_INSTALL_LIBDIR} /${CMAKE_INSTALL_INCLUDEDIR})

# An archive of rooms. What it links is needed to link the user's program and never in its compile line.
#   NEEDS: our other archives. LINKS: libraries as CMake targets or names. FLAGS: the same for pkg-config.
function(oncekey_archive name)
  cmake_parse_arguments(ARCHIVE "" "ABOUT;FLAGS" "ROOMS;NEEDS;LINKS" ${ARGN})
  list(TRANSFORM ARCHIVE_ROOMS REPLACE "(.+)" "$<TARGET_OBJECTS:oncekey_\\1>" OUTPUT_VARIABLE objects)
  set(target oncekey_archive_${name})
  add_library(${target} STATIC ${objects})
  set_target_properties(${target} PROPERTIES OUTPUT_NAME oncekey_${name} EXPORT_NAME ${name} LINKER_LANGUAGE CXX
    ARCHIVE_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/library INTERPROCEDURAL_OPTIMIZATION OFF)
  target_include_directories(${target} INTERFACE $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  target_compile_features(${target} INTERFACE cxx_std_20)
  list(TRANSFORM ARCHIVE_NEEDS PREPEND oncekey_archive_ OUTPUT_VARIABLE needed)
  list(TRANSFORM ARCHIVE_LINKS REPLACE "(.+)" "$<INSTALL_INTERFACE:$<LINK_ONLY:\\1>>" OUTPUT_VARIABLE linked)
  target_link_libraries(${target} INTERFACE ${needed} ${linked})
  if(CMAKE_INTERPROCEDURAL_OPTIMIZATION AND NOT ONCEKEY_PACKAGE) # packages hold none of the archives
    # The rooms' objects hold code for the linker to optimise, and ordinary code beside it. Without the former a
    # program that uses the archive links in a fraction of a second, and any compiler's linker can read it.
    foreach(room IN LISTS ARCHIVE_ROOMS)
      target_compile_options(oncekey_${room} PRIVATE -ffat-lto-objects)
    endforeach()
    add_custom_command(TARGET ${target} POST_BUILD VERBATIM COMMAND ${CMAKE_OBJCOPY} --wildcard
      --remove-section=.gnu.lto_* --remove-section=.gnu.debuglto_* --strip-symbol=__gnu_lto_v1 $<TARGET_FILE:${target}>)
  endif()
  install(TARGETS ${target} EXPORT oncekey-${name} COMPONENT library)
  install(EXPORT oncekey-${name} NAMESPACE oncekey:: DESTINATION ${package_folder} COMPONENT library)

  set(ONCEKEY_NAME ${name})
  set(ONCEKEY_ABOUT "${ARCHIVE_ABOUT}")
  set(ONCEKEY_FLAGS "${ARCHIVE_FLAGS}")
  list(TRANSFORM ARCHIVE_NEEDS PREPEND oncekey- OUTPUT_VARIABLE required)
  list(JOIN required " " ONCEKEY_REQUIRED)
  configure_file(cmake/oncekey.pc.in ${PROJECT_BINARY_DIR}/library/oncekey-${name}.pc @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/library/oncekey-${name}.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig
    COMPONENT library)
endfunction()

oncekey_archive(common ABOUT "What Oncekey's libraries share" ROOMS base core net
  LINKS OpenSSL::SSL OpenSSL::Crypto spdlog::spdlog fmt::fmt Boost::json oncekey::xxhash Threads::Threads
  FLAGS "-lspdlog -lfmt -lboost_json -lboost_container -lxxhash -lssl -lcrypto -pthread")
oncekey_archive(client ABOUT "A client that retries under one idempotency key" ROOMS http client NEEDS common)
oncekey_archive(phases ABOUT "Atomic phases with recovery points and staged jobs" ROOMS phases NEEDS common
  LINKS SQLite::SQLite3 PostgreSQL::PostgreSQL FLAGS "-lsqlite3 -lpq")
oncekey_archive(workers ABOUT "Completer, enqueuer and reaper for operations and staged jobs" ROOMS redis workers
  NEEDS phases client LINKS oncekey::hiredis FLAGS "-lhiredis")

# The public headers: those below and what they include.
set(public_headers client.h derive.h inbox.h workers.h)
set(unread_headers ${public_headers})
while(unread_headers)
  list(POP_FRONT unread_headers header)
  file(STRINGS include/oncekey/${header} lines REGEX "^#include <oncekey/")
  list(TRANSFORM lines REPLACE "#include <oncekey/(.*)>.*" "\\1")
  list(REMOVE_ITEM lines ${public_headers})
  list(APPEND public_headers ${lines})
  list(APPEND unread_headers ${lines})
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/include/oncekey/${header})
endwhile()
list(TRANSFORM public_headers PREPEND include/oncekey/)
install(FILES ${public_headers} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/oncekey COMPONENT library)
install(DIRECTORY ${PROJECT_BINARY_DIR}/generated/schema DESTINATION ${CMAKE_INSTALL_DATADIR}/oncekey COMPONENT library)

configure_package_config_file(cmake/oncekey-config.cmake.in ${PROJECT_BINARY_DIR}/oncekey-config.cmake
  INSTALL_DESTINATION ${package_folder})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/oncekey-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/oncekey-config.cmake ${PROJECT_BINARY_DIR}/oncekey-config-version.cmake
  DESTINATION ${package_folder} COMPONENT library)

install(TARGETS oncekey_main RUNTIME COMPONENT gateway)
install(FILES README.md CHANGELOG.md LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT gateway)
install(DIRECTORY docs DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT gateway)
install(DIRECTORY examples DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT gateway)
install(FILES docs/oncekey.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 COMPONENT gateway)
