# What needs nothing but libc and public calls. Libraries and programs beside libweir, which exports none of it, link it by itself
# (weir_base).
set(WEIR_BASE_SOURCES)
foreach(file checks keywords maps numbers paths)
  list(APPEND WEIR_BASE_SOURCES ${CMAKE_CURRENT_LIST_DIR}/${file}.c)
endforeach()
list(APPEND WEIR_SOURCES ${WEIR_BASE_SOURCES})
foreach(file status log options values sysfs cgroup system texts bitmap biased)
  list(APPEND WEIR_SOURCES ${CMAKE_CURRENT_LIST_DIR}/${file}.c)
endforeach()
