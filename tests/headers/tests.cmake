# Every public header stands alone, in C11 and in C++17, for both compilers where they are here.
if(NOT CMAKE_CROSSCOMPILING AND NOT WEIR_SANITIZE)
  add_test(NAME headers COMMAND ${CMAKE_CURRENT_LIST_DIR}/headers.sh ${PROJECT_SOURCE_DIR}/include)
  set_tests_properties(headers PROPERTIES LABELS package SKIP_RETURN_CODE 77)
endif()

# Arrows between the rooms of src/ point one way.
if(Python3_FOUND AND NOT CMAKE_CROSSCOMPILING AND NOT WEIR_SANITIZE)
  add_test(NAME headers-arrows COMMAND ${Python3_EXECUTABLE} -B ${CMAKE_CURRENT_LIST_DIR}/arrows.py ${PROJECT_SOURCE_DIR}/src)
endif()
