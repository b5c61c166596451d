# Run by the build (see MfsdpBuildInfo.cmake): asks git for the commit and writes the header.
# configure_file leaves the header alone when its text does not change.
set(MFSDP_COMMIT "unknown")
find_program(GIT git)
if(GIT)
  execute_process(COMMAND ${GIT} -C ${SOURCE_DIR} describe --always --dirty --abbrev=12 --exclude=*
                  OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE
                  RESULT_VARIABLE failed ERROR_QUIET)
  if(NOT failed)
    set(MFSDP_COMMIT "${commit}")
  endif()
endif()
configure_file(${TEMPLATE} ${HEADER} @ONLY)
