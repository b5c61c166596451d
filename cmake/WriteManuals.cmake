# Run by the build (see MfsdpManuals.cmake): TOOL writes its forms to the files that are named.
set(ENV{MFSDP_SCENARIOS} ${SCENARIOS})
foreach(format man bash zsh fish)
  get_filename_component(folder ${${format}} DIRECTORY)
  file(MAKE_DIRECTORY ${folder})
  execute_process(COMMAND ${TOOL} --help-format ${format} OUTPUT_FILE ${${format}}
                  COMMAND_ERROR_IS_FATAL ANY)
endforeach()
