# Compiles through ccache where it is installed. Paths below the source folder are told to it relatively, so that build trees of
# worktrees and clones take each other's objects.
option(WEIR_CCACHE "Compile through ccache where it is installed" ${PROJECT_IS_TOP_LEVEL})
if(WEIR_CCACHE AND NOT CMAKE_C_COMPILER_LAUNCHER)
  find_program(WEIR_CCACHE_PROGRAM ccache)
  if(WEIR_CCACHE_PROGRAM)
    # Without the folder of the build in the key: debug information then names files relative to it.
    set(CMAKE_C_COMPILER_LAUNCHER env CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} CCACHE_NOHASHDIR=1 ${WEIR_CCACHE_PROGRAM})
    set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_C_COMPILER_LAUNCHER})
  endif()
endif()
