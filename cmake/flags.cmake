# Warnings are errors; hardening is on in every build. One interface target carries both to every room.
add_library(oncekey_flags INTERFACE)
target_compile_options(oncekey_flags INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor -Woverloaded-virtual -Wold-style-cast
  -Wimplicit-fallthrough -Wunused-result -Werror
  -fPIE -fstack-protector-strong -fcf-protection)
# A program under the address sanitizer has a fixed address and looks functions up when they are first called. That
# takes a quarter off its start, and the tests start it more than a thousand times.
if(ONCEKEY_SANITIZE MATCHES address)
  target_link_options(oncekey_flags INTERFACE -no-pie -Wl,-z,relro,-z,lazy,-z,noexecstack)
else()
  target_link_options(oncekey_flags INTERFACE -pie -Wl,-z,relro,-z,now,-z,noexecstack)
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
  target_compile_options(oncekey_flags INTERFACE
    -Wno-subobject-linkage   # compiled several at once, every source looks to gcc like an included one
    -Wno-maybe-uninitialized # gcc 12 sees ghosts in optimised std::variant, std::optional and std::string
    -Wno-stringop-overread)  # and in std::string_view::find
else()
  target_compile_options(oncekey_flags INTERFACE
    -Wno-deprecated-declarations) # of gcc's own headers, inside std::stable_sort
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU AND CMAKE_BUILD_TYPE STREQUAL "Debug")
  # The compiler collects its garbage when it has a gigabyte of it: a tenth of its time otherwise.
  target_compile_options(oncekey_flags INTERFACE "SHELL:--param ggc-min-expand=1000" "SHELL:--param ggc-min-heapsize=1000000")
endif()
target_compile_definitions(oncekey_flags INTERFACE _GLIBCXX_ASSERTIONS)
# Link-time optimisation takes the frames gcc makes of one coroutine template in two sources for two types.
target_link_options(oncekey_flags INTERFACE $<$<CXX_COMPILER_ID:GNU>:-Wno-odr>)

if(ONCEKEY_SANITIZE)
  target_compile_options(oncekey_flags INTERFACE
    -fsanitize=${ONCEKEY_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  # Checking each pointer for null and alignment before each use, the type of each object whose virtual functions are
  # called, and that no pointer's arithmetic passes the end of the address space, takes a third of the compiler's time. The
  # address sanitizer reports a null or wild pointer that is used as well; `make test-slow` checks it all, with gcc: clang
  # looks at an object's type by a system call, which tests take away.
  option(ONCEKEY_EVERY_CHECK "check pointers for null, alignment, type and overflow too" OFF)
  if(ONCEKEY_SANITIZE MATCHES undefined AND NOT ONCEKEY_EVERY_CHECK)
    target_compile_options(oncekey_flags INTERFACE -fno-sanitize=null,alignment,vptr,pointer-overflow)
  endif()
  # There are some twenty programs with all of the code in them, and this linker takes a third of the time for each. It
  # offers RocksDB a few more of a program's own templates (see below), which the thread sanitizer would take for races.
  find_program(ONCEKEY_LLD ld.lld)
  if(ONCEKEY_LLD AND NOT ONCEKEY_SANITIZE MATCHES thread)
    target_link_options(oncekey_flags INTERFACE -fuse-ld=lld)
  endif()
  # Otherwise the linker offers our instrumented copies of standard templates to RocksDB, which is not instrumented.
  # clang's runtime would be in an archive too, and must be offered: it is linked as a shared library.
  target_link_options(oncekey_flags INTERFACE -fsanitize=${ONCEKEY_SANITIZE} -Wl,--exclude-libs,ALL)
  if(CMAKE_CXX_COMPILER_ID STREQUAL Clang)
    execute_process(COMMAND ${CMAKE_CXX_COMPILER} -print-file-name=libclang_rt.tsan-${CMAKE_SYSTEM_PROCESSOR}.so
      OUTPUT_VARIABLE runtime OUTPUT_STRIP_TRAILING_WHITESPACE)
    cmake_path(GET runtime PARENT_PATH runtime)
    set(ONCEKEY_SANITIZER_RUNTIME -shared-libsan -Wl,-rpath,${runtime})
    target_link_options(oncekey_flags INTERFACE ${ONCEKEY_SANITIZER_RUNTIME})
  endif()
  if(ONCEKEY_SANITIZE MATCHES thread AND CMAKE_CXX_COMPILER_ID STREQUAL GNU)
    # Asio fences with atomic_thread_fence, which the thread sanitizer does not follow; its own fallback it does.
    target_compile_options(oncekey_flags INTERFACE -Wno-tsan)
  endif()
else()
  target_compile_definitions(oncekey_flags INTERFACE $<$<CONFIG:Release>:_FORTIFY_SOURCE=2>)
endif()
