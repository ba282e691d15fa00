# cmake --install: the library of atomic phases and the client for other programs, as one archive with the public
# headers, a CMake package (find_package(oncekey), target oncekey::phases) and a pkg-config file.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(library_rooms base core phases workers http client)
list(TRANSFORM library_rooms REPLACE "(.+)" "$<TARGET_OBJECTS:oncekey_\\1>" OUTPUT_VARIABLE library_objects)
add_library(oncekey_library STATIC ${library_objects})
set_target_properties(oncekey_library PROPERTIES OUTPUT_NAME oncekey EXPORT_NAME phases LINKER_LANGUAGE CXX
  INTERPROCEDURAL_OPTIMIZATION OFF)
target_include_directories(oncekey_library INTERFACE $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
target_compile_features(oncekey_library INTERFACE cxx_std_20)
target_link_libraries(oncekey_library INTERFACE SQLite::SQLite3 PostgreSQL::PostgreSQL OpenSSL::SSL OpenSSL::Crypto
  Boost::json spdlog::spdlog fmt::fmt Threads::Threads hiredis xxhash)
# Where objects are meant for link-time optimisation, other people's linkers need ordinary code beside it.
foreach(room IN LISTS library_rooms)
  target_compile_options(oncekey_${room} PRIVATE $<$<CONFIG:Release>:-ffat-lto-objects>)
endforeach()

install(TARGETS oncekey_library EXPORT oncekey COMPONENT library)
install(DIRECTORY include/oncekey DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT library)
install(DIRECTORY src/phases/schema DESTINATION ${CMAKE_INSTALL_DATADIR}/oncekey COMPONENT library)
install(EXPORT oncekey NAMESPACE oncekey:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/oncekey COMPONENT library)

configure_package_config_file(cmake/oncekey-config.cmake.in ${PROJECT_BINARY_DIR}/oncekey-config.cmake
  INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/oncekey)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/oncekey-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/oncekey-config.cmake ${PROJECT_BINARY_DIR}/oncekey-config-version.cmake
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/oncekey COMPONENT library)

file(RELATIVE_PATH ONCEKEY_INCLUDE_FROM_LIB /${CMAKE_INSTALL_LIBDIR} /${CMAKE_INSTALL_INCLUDEDIR})
configure_file(cmake/oncekey.pc.in ${PROJECT_BINARY_DIR}/oncekey.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/oncekey.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT library)
