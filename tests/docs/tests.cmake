# What README.md and docs/ show is compiled and run.
if(CMAKE_CROSSCOMPILING OR WEIR_SANITIZE)
  return()
endif()
add_test(NAME docs COMMAND ${CMAKE_COMMAND} -E env CC=${CMAKE_C_COMPILER} WEIR_HOME=${WEIR_STORE_PATH}
  ${Python3_EXECUTABLE} ${CMAKE_CURRENT_LIST_DIR}/snippets.py ${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR})
set_tests_properties(docs PROPERTIES LABELS engine)
add_test(NAME docs-words COMMAND ${Python3_EXECUTABLE} -B ${CMAKE_CURRENT_LIST_DIR}/words.py ${PROJECT_SOURCE_DIR})
add_test(NAME docs-names COMMAND ${Python3_EXECUTABLE} -B ${CMAKE_CURRENT_LIST_DIR}/names.py ${PROJECT_SOURCE_DIR})
# What the pages say to call, and where CONTRIBUTING.md says that things are.
add_test(NAME docs-commands COMMAND ${Python3_EXECUTABLE} -B ${CMAKE_CURRENT_LIST_DIR}/commands.py ${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR})
add_test(NAME docs-where COMMAND ${Python3_EXECUTABLE} -B ${CMAKE_CURRENT_LIST_DIR}/where.py ${PROJECT_SOURCE_DIR})
add_test(NAME docs-house COMMAND ${Python3_EXECUTABLE} -B ${CMAKE_CURRENT_LIST_DIR}/house.py ${PROJECT_SOURCE_DIR})
set_tests_properties(docs-names docs-words docs-commands docs-where docs-house PROPERTIES LABELS scripts)
