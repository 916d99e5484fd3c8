# What models will take, and what loads of them have taken.
foreach(file records contents forecast gguf)
  list(APPEND WEIR_SOURCES ${CMAKE_CURRENT_LIST_DIR}/${file}.c)
endforeach()
