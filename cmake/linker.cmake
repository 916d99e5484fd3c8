# Links builds for tests by lld where it is installed, in a quarter of the time: hundreds of programs are most of what a build tree
# takes whose objects come out of ccache. Each on one thread, as they are linked side by side, and without looking for equal texts of
# debug information. Products are linked by the compiler's own linker.
option(WEIR_LLD "Link builds that are not optimised by lld where it is installed" ${PROJECT_IS_TOP_LEVEL})
if(WEIR_LLD AND CMAKE_BUILD_TYPE STREQUAL "Debug" AND NOT CMAKE_CROSSCOMPILING)
  find_program(WEIR_LLD_PROGRAM ld.lld)
  if(WEIR_LLD_PROGRAM)
    add_link_options(-fuse-ld=lld -Wl,--threads=1 -Wl,-O0)
  endif()
endif()
