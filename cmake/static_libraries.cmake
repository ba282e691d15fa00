# The libraries of a binary that starts on any Debian 12 or Ubuntu 22.04 and later without further packages
# (ONCEKEY_PACKAGE): all but the C library are linked from archives. The targets have the names of those that find_package
# makes, so that rooms link them in either build.
#
# Debian has archives of most. The exceptions:
#   fmt, spdlog, toml++   their headers hold everything
#   prometheus-cpp        Debian's source package is compiled; scripts/package fetches it
#   libpq                 wants GSSAPI and LDAP, which have no archives: packaging/static/no_gssapi_no_ldap.c stands in for them.
#                         Its own two helper archives come with postgresql-server-dev; scripts/package fetches them.
set(ONCEKEY_PROMETHEUS_SOURCES "" CACHE PATH "the unpacked source package of prometheus-cpp")
set(ONCEKEY_POSTGRES_ARCHIVES "" CACHE PATH "the folder of libpgcommon_shlib.a and libpgport_shlib.a")

set(CMAKE_FIND_LIBRARY_SUFFIXES .a)
set(OPENSSL_USE_STATIC_LIBS ON)
set(Boost_USE_STATIC_LIBS ON)
find_package(Threads REQUIRED)
find_package(OpenSSL 3 REQUIRED)
find_package(ZLIB REQUIRED)
find_package(Boost 1.81 REQUIRED COMPONENTS json)
find_package(CLI11 REQUIRED)
find_package(SQLite3 3.38 REQUIRED)
find_library(HIREDIS_LIBRARY hiredis REQUIRED)
find_library(XXHASH_LIBRARY xxhash REQUIRED)
find_library(URING_LIBRARY uring REQUIRED)
# Made for programs that may be loaded anywhere, as ours.
find_library(JEMALLOC_LIBRARY NAMES jemalloc_pic REQUIRED)

# An archive under the name of a target, with the archives it needs itself.
function(oncekey_archive_as target name)
  cmake_parse_arguments(STATIC "" "INCLUDE" "NEEDS;HINTS" ${ARGN})
  find_library(ONCEKEY_LIB_${name} ${name} HINTS ${STATIC_HINTS} REQUIRED)
  add_library(${target} STATIC IMPORTED GLOBAL)
  set_target_properties(${target} PROPERTIES IMPORTED_LOCATION ${ONCEKEY_LIB_${name}})
  target_link_libraries(${target} INTERFACE ${STATIC_NEEDS})
  if(STATIC_INCLUDE)
    target_include_directories(${target} INTERFACE ${STATIC_INCLUDE})
  endif()
endfunction()

foreach(name snappy lz4 zstd bz2)
  oncekey_archive_as(oncekey::${name} ${name})
endforeach()
oncekey_archive_as(RocksDB::rocksdb-shared rocksdb NEEDS oncekey::snappy oncekey::lz4 oncekey::zstd oncekey::bz2 ZLIB::ZLIB
  Threads::Threads ${CMAKE_DL_LIBS})

add_library(fmt::fmt INTERFACE IMPORTED GLOBAL)
target_compile_definitions(fmt::fmt INTERFACE FMT_HEADER_ONLY=1)
add_library(spdlog::spdlog INTERFACE IMPORTED GLOBAL)
target_compile_definitions(spdlog::spdlog INTERFACE SPDLOG_FMT_EXTERNAL)
target_link_libraries(spdlog::spdlog INTERFACE fmt::fmt Threads::Threads)
add_library(tomlplusplus::tomlplusplus INTERFACE IMPORTED GLOBAL)
target_compile_definitions(tomlplusplus::tomlplusplus INTERFACE TOML_HEADER_ONLY=1)

file(GLOB_RECURSE prometheus_sources ${ONCEKEY_PROMETHEUS_SOURCES}/core/src/*.cc)
if(NOT prometheus_sources)
  message(FATAL_ERROR "no sources of prometheus-cpp in ONCEKEY_PROMETHEUS_SOURCES (\"${ONCEKEY_PROMETHEUS_SOURCES}\"): build packages "
    "with `make package`, which fetches them")
endif()
add_library(prometheus_core STATIC ${prometheus_sources})
target_include_directories(prometheus_core PRIVATE ${ONCEKEY_PROMETHEUS_SOURCES}/core/src ${ONCEKEY_PROMETHEUS_SOURCES}/core/src/detail)
target_compile_options(prometheus_core PRIVATE -fPIE)
add_library(prometheus-cpp::core ALIAS prometheus_core)

add_library(no_gssapi_no_ldap STATIC packaging/static/no_gssapi_no_ldap.c)
target_compile_options(no_gssapi_no_ldap PRIVATE -fPIE -Wall -Wextra -Werror)
file(GLOB postgres_folders /usr/lib/postgresql/15/lib)
oncekey_archive_as(oncekey::pgport pgport_shlib HINTS ${ONCEKEY_POSTGRES_ARCHIVES} ${postgres_folders})
oncekey_archive_as(oncekey::pgcommon pgcommon_shlib HINTS ${ONCEKEY_POSTGRES_ARCHIVES} ${postgres_folders}
  NEEDS oncekey::pgport OpenSSL::Crypto)
oncekey_archive_as(PostgreSQL::PostgreSQL pq INCLUDE /usr/include/postgresql
  NEEDS oncekey::pgcommon oncekey::pgport no_gssapi_no_ldap OpenSSL::SSL OpenSSL::Crypto)

# Symbols that are newer than glibc 2.35, the one of Ubuntu 22.04. scripts/package checks that none is left.
# Objects, not an archive: libstdc++ asks for them after the archives were looked through.
add_library(oncekey_older_glibc OBJECT packaging/static/older_glibc.c)
target_compile_options(oncekey_older_glibc PRIVATE -fPIE -Wall -Wextra -Werror)
