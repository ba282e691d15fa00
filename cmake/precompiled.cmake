# Headers that many sources include and nobody here changes, read once: most of a source's time goes into them.
# gcc takes a precompiled header only where the flags are those it was made with; the rooms share theirs (flags.cmake).
option(ONCEKEY_PRECOMPILE "read the headers of libraries once for all sources" ON)

set(standard_headers <algorithm> <array> <atomic> <charconv> <chrono> <condition_variable> <cstdint> <cstring> <deque>
  <filesystem> <fstream> <functional> <future> <iostream> <map> <memory> <mutex> <optional> <set> <span> <string>
  <string_view> <thread> <unordered_map> <utility> <variant> <vector> <fmt/format.h>)

# One library per set of headers; it holds nothing else.
function(oncekey_precompiled name)
  cmake_parse_arguments(SET "" "" "HEADERS;LINKS" ${ARGN})
  file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/generated/${name}.cc CONTENT "")
  add_library(${name} OBJECT ${PROJECT_BINARY_DIR}/generated/${name}.cc)
  target_link_libraries(${name} PRIVATE oncekey_flags ${SET_LINKS})
  target_precompile_headers(${name} PRIVATE ${SET_HEADERS})
endfunction()

function(oncekey_use_precompiled target name)
  if(ONCEKEY_PRECOMPILE)
    target_precompile_headers(${target} REUSE_FROM ${name})
  endif()
endfunction()

if(ONCEKEY_PRECOMPILE)
  oncekey_precompiled(precompiled_standard HEADERS ${standard_headers} LINKS fmt::fmt)
  if(ONCEKEY_TESTS)
    find_package(GTest REQUIRED)
    oncekey_precompiled(precompiled_tests HEADERS ${standard_headers} <gtest/gtest.h> <gmock/gmock.h>
      LINKS fmt::fmt GTest::gtest GTest::gmock)
  endif()
endif()
