# mfsdp_embed(<target> <list of files>...): compiles the files into the target as data, in the order
# given. reports/html/assets.hpp declares them. They are embedded again when one of them changed.
function(mfsdp_embed target)
  set(output ${CMAKE_BINARY_DIR}/generated/${target}_assets.cpp)
  set(files)
  foreach(file IN LISTS ARGN)
    list(APPEND files ${CMAKE_CURRENT_SOURCE_DIR}/${file})
  endforeach()
  set(script ${CMAKE_SOURCE_DIR}/cmake/WriteAssets.cmake)
  add_custom_command(OUTPUT ${output}
    COMMAND ${CMAKE_COMMAND} -D "FILES=${files}" -D "OUTPUT=${output}" -P ${script}
    DEPENDS ${files} ${script}
    COMMENT "Embedding the files of ${target}"
    VERBATIM)
  target_sources(${target} PRIVATE ${output})
  set_source_files_properties(${output} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON SKIP_LINTING ON)
endfunction()
