# The installed tree: installed into a scratch prefix, moved elsewhere, and used from there by a project of its own.
# Not under sanitizers (a consumer would need their runtimes), and not when cross-compiling.
if(WEIR_SANITIZE OR CMAKE_CROSSCOMPILING OR NOT WEIR_INSTALL)
  return()
endif()
set(package ${CMAKE_COMMAND} -E env CC=${CMAKE_C_COMPILER} WEIR_LLAMA=${WEIR_LLAMA}
  ${Python3_EXECUTABLE} ${CMAKE_CURRENT_LIST_DIR}/package.py ${PROJECT_BINARY_DIR})
add_test(NAME package-install COMMAND ${package} install)
set_tests_properties(package-install PROPERTIES FIXTURES_SETUP package LABELS package)
set(cases cmake-shared cmake-static pkgconfig-shared pkgconfig-static symbols files own-base own-adaptor own-driver uninstall)
if(WEIR_HAVE_LLAMA)
  list(APPEND cases plugin)
endif()
foreach(case IN LISTS cases)
  add_test(NAME package-${case} COMMAND ${package} ${case})
  set_tests_properties(package-${case} PROPERTIES FIXTURES_REQUIRED package LABELS package)
endforeach()
