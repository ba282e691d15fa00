# Puts the files of src/admin/console into the binary: one source file with their bytes. Any byte is possible: each is
# written as an escape. Made again when a file changes, or one comes or goes.
#
# This file is included by the build, and run by it as a script (cmake -P) with FOLDER, OUT and FILES.

if(CMAKE_SCRIPT_MODE_FILE)
  set(type_of_html "text/html; charset=utf-8")
  set(type_of_css "text/css; charset=utf-8")
  set(type_of_js "text/javascript; charset=utf-8")
  set(type_of_svg "image/svg+xml")
  set(type_of_LICENSE "text/plain; charset=utf-8")

  set(source "// Made by cmake/embed_console.cmake out of src/admin/console.\n#include \"admin/console_files.h\"\n\n")
  string(APPEND source "namespace oncekey {\nnamespace {\n\nusing namespace std::string_view_literals;\n\n")
  string(APPEND source "constexpr ConsoleFile kFiles[] = {\n")
  string(REPEAT "[0-9a-f]" 64 line)
  foreach(name IN LISTS FILES)
    string(REGEX MATCH "[^.]*$" kind "${name}")
    if(NOT DEFINED type_of_${kind})
      message(FATAL_ERROR "src/admin/console/${name}: cmake/embed_console.cmake knows no content type for \".${kind}\"")
    endif()
    file(READ ${FOLDER}/${name} bytes HEX)
    file(SHA256 ${FOLDER}/${name} hash)
    string(SUBSTRING ${hash} 0 16 hash)
    string(REGEX REPLACE "(${line})" "\\1\n" bytes "${bytes}")
    string(REGEX REPLACE "([0-9a-f][0-9a-f])" "\\\\x\\1" bytes "${bytes}")
    string(REPLACE "\n" "\"\n     \"" bytes "${bytes}")
    string(APPEND source "    {\"${name}\"sv, \"${type_of_${kind}}\"sv, \"\\\"${hash}\\\"\"sv,\n     \"${bytes}\"sv},\n")
  endforeach()
  string(APPEND source "};\n\n} // namespace\n\nstd::span<const ConsoleFile> console_files() { return kFiles; }\n\n} // namespace oncekey\n")
  file(WRITE ${OUT} "${source}")
  return()
endif()

function(oncekey_embed_console out)
  set(folder ${PROJECT_SOURCE_DIR}/src/admin/console)
  file(GLOB_RECURSE names CONFIGURE_DEPENDS RELATIVE ${folder}
    ${folder}/*.html ${folder}/*.css ${folder}/*.js ${folder}/*.svg ${folder}/*.LICENSE)
  list(TRANSFORM names PREPEND ${folder}/ OUTPUT_VARIABLE paths)
  set(path ${PROJECT_BINARY_DIR}/generated/console_files.cc)
  set(script ${PROJECT_SOURCE_DIR}/cmake/embed_console.cmake)
  add_custom_command(OUTPUT ${path} VERBATIM DEPENDS ${paths} ${script}
    COMMAND ${CMAKE_COMMAND} -D "FOLDER=${folder}" -D "OUT=${path}" -D "FILES=${names}" -P ${script})
  set(${out} ${path} PARENT_SCOPE)
endfunction()
