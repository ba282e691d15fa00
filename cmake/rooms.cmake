# One library per room (docs/ARCHITECTURE.md). What a room may include is what it links: a wrong include does not link,
# and tests/include_directions.py says so in words.
function(oncekey_room name)
  cmake_parse_arguments(ROOM "" "FOLDER" "USES;LINKS" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/${ROOM_FOLDER}/*.cc)
  list(FILTER sources EXCLUDE REGEX "_test\\.cc$")
  list(FILTER sources EXCLUDE REGEX "/cli/main\\.cc$")
  add_library(oncekey_${name} STATIC ${sources})
  target_include_directories(oncekey_${name} PUBLIC ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src)
  target_link_libraries(oncekey_${name} PUBLIC ${ROOM_USES} PRIVATE oncekey_flags ${ROOM_LINKS})
  oncekey_use_precompiled(oncekey_${name} precompiled_standard)
endfunction()

include(${CMAKE_CURRENT_LIST_DIR}/precompiled.cmake)

# It decides for itself what OpenSSL's headers declare, which a file in front of it would decide in its place.
set_source_files_properties(${PROJECT_SOURCE_DIR}/src/base/crypto.cc PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
oncekey_room(base FOLDER base LINKS OpenSSL::SSL OpenSSL::Crypto spdlog::spdlog USES fmt::fmt Threads::Threads)
oncekey_room(core FOLDER core USES oncekey_base LINKS Boost::json ${XXHASH_LIBRARY})
# Below http, the Redis client and what uses them: tasks, timers, sockets with TLS.
oncekey_room(net FOLDER net USES oncekey_base Boost::headers LINKS OpenSSL::SSL)
oncekey_room(redis FOLDER redis USES oncekey_net LINKS ${HIREDIS_LIBRARY})
oncekey_room(store_common FOLDER store/common USES oncekey_core)
oncekey_room(store_memory FOLDER store/memory USES oncekey_store_common)
oncekey_room(store_journal FOLDER store/journal USES oncekey_store_common oncekey_net LINKS RocksDB::rocksdb-shared ${XXHASH_LIBRARY} ${URING_LIBRARY})
oncekey_room(store_postgres FOLDER store/postgres USES oncekey_store_common LINKS PostgreSQL::PostgreSQL)
oncekey_room(store_redis FOLDER store/redis USES oncekey_store_common oncekey_redis)
oncekey_room(store FOLDER store USES oncekey_core
  LINKS oncekey_store_memory oncekey_store_journal oncekey_store_postgres oncekey_store_redis)
oncekey_room(signatures FOLDER signatures USES oncekey_core)
# Header-only: it brings jobs of any kind to any place.
add_library(oncekey_jobs INTERFACE)
target_include_directories(oncekey_jobs INTERFACE ${PROJECT_SOURCE_DIR}/src)
# The library of atomic phases.
include(${CMAKE_CURRENT_LIST_DIR}/embed_schema.cmake)
oncekey_embed_schema(ONCEKEY_SCHEMA_SOURCE)
oncekey_room(phases FOLDER phases USES oncekey_core LINKS SQLite::SQLite3 PostgreSQL::PostgreSQL)
target_sources(oncekey_phases PRIVATE ${ONCEKEY_SCHEMA_SOURCE})
oncekey_room(config FOLDER config USES oncekey_core oncekey_signatures LINKS tomlplusplus::tomlplusplus)
oncekey_room(http FOLDER http USES oncekey_net)
oncekey_room(workers FOLDER workers USES oncekey_phases oncekey_http oncekey_redis oncekey_jobs LINKS Boost::json)
oncekey_room(client FOLDER client USES oncekey_core oncekey_http)
# What gateways write and operators read: who did what, and what was decided.
oncekey_room(audit FOLDER audit USES oncekey_base LINKS Boost::json)
# The spans of requests, and the thread that sends them.
oncekey_room(trace FOLDER trace USES oncekey_core oncekey_http)
oncekey_room(gateway FOLDER gateway USES oncekey_core oncekey_http oncekey_config oncekey_audit oncekey_trace prometheus-cpp::core LINKS ZLIB::ZLIB)
oncekey_room(delivery FOLDER delivery USES oncekey_gateway oncekey_jobs)
include(${CMAKE_CURRENT_LIST_DIR}/embed_console.cmake)
oncekey_embed_console(ONCEKEY_CONSOLE_SOURCE)
oncekey_room(admin FOLDER admin USES oncekey_gateway LINKS Boost::json)
target_sources(oncekey_admin PRIVATE ${ONCEKEY_CONSOLE_SOURCE})
set_source_files_properties(${ONCEKEY_CONSOLE_SOURCE} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
oncekey_room(cli FOLDER cli USES oncekey_admin oncekey_delivery oncekey_client oncekey_gateway oncekey_store oncekey_config oncekey_workers LINKS CLI11::CLI11 Boost::json)
