weir_test(uses ${CMAKE_CURRENT_LIST_DIR}/uses.c TIMEOUT 120)
target_include_directories(test-uses PRIVATE ${CMAKE_CURRENT_LIST_DIR}/../core)
