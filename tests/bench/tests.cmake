# How programs of bench/ that compare answers tell a tie from a fault.
weir_test(bench-ties bench/ties.c ${PROJECT_SOURCE_DIR}/bench/ties.c LIBS m)

# What bench/instructions.py reads, and the PyTorch programs of bench/, over stand-ins for PyTorch and the package.
if(Python3_FOUND AND PROJECT_IS_TOP_LEVEL AND NOT CMAKE_CROSSCOMPILING AND NOT WEIR_SANITIZE)
  foreach(part instructions torch_programs torch_imports)
    string(REPLACE "_" "-" name ${part})
    add_test(NAME bench-${name} COMMAND ${Python3_EXECUTABLE} -B ${CMAKE_CURRENT_LIST_DIR}/test_${part}.py)
    set_tests_properties(bench-${name} PROPERTIES LABELS scripts)
  endforeach()
endif()
