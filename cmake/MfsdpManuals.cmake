# mfsdp_manual(<tool>): its manual page and its completion for bash, zsh and fish, which the tool
# writes itself (--help-format) when it is built; and how they are installed, where distributions
# look. A build that cannot run the tool, or is not for users, has none.
set(MFSDP_MANUALS ON)
if(CMAKE_CROSSCOMPILING OR MFSDP_SANITIZE OR MFSDP_COVERAGE)
  set(MFSDP_MANUALS OFF)
endif()

function(mfsdp_manual tool)
  if(NOT MFSDP_MANUALS)
    return()
  endif()
  set(folder ${CMAKE_BINARY_DIR}/generated/manuals)
  set(page ${folder}/man1/${tool}.1)
  set(bash ${folder}/bash/${tool})
  set(zsh ${folder}/zsh/_${tool})
  set(fish ${folder}/fish/${tool}.fish)
  set(script ${CMAKE_SOURCE_DIR}/cmake/WriteManuals.cmake)
  # Completion has the names of the scenarios.
  file(GLOB scenarios CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/scenarios/models/*/config.json
       ${CMAKE_SOURCE_DIR}/scenarios/gpus/*.toml ${CMAKE_SOURCE_DIR}/scenarios/clusters/*.toml)
  add_custom_command(OUTPUT ${page} ${bash} ${zsh} ${fish}
    COMMAND ${CMAKE_COMMAND} -D "TOOL=$<TARGET_FILE:${tool}>" -D "SCENARIOS=${CMAKE_SOURCE_DIR}/scenarios"
      -D "man=${page}" -D "bash=${bash}" -D "zsh=${zsh}" -D "fish=${fish}" -P ${script}
    DEPENDS ${tool} ${script} ${scenarios}
    COMMENT "Manual page and completion of ${tool}"
    VERBATIM)
  add_custom_target(${tool}_manual ALL DEPENDS ${page} ${bash} ${zsh} ${fish})
  set(share ${CMAKE_INSTALL_DATADIR})
  install(FILES ${page} DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 COMPONENT tools)
  install(FILES ${bash} DESTINATION ${share}/bash-completion/completions COMPONENT tools)
  install(FILES ${zsh} DESTINATION ${share}/zsh/site-functions COMPONENT tools)
  install(FILES ${fish} DESTINATION ${share}/fish/vendor_completions.d COMPONENT tools)
endfunction()
