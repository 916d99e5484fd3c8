# Every public header stands alone, in C11 and in C++17, for both compilers where they are here.
if(NOT CMAKE_CROSSCOMPILING AND NOT WEIR_SANITIZE)
  add_test(NAME headers COMMAND ${CMAKE_CURRENT_LIST_DIR}/headers.sh ${PROJECT_SOURCE_DIR}/include)
  set_tests_properties(headers PROPERTIES LABELS package TIMEOUT 300 SKIP_RETURN_CODE 77)
endif()
