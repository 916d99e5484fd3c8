# Import slots of modules, and CUDA's memory redirected by them. Modules are built here in the ways that linkers know.
include(${PROJECT_SOURCE_DIR}/tests/stub/tests.cmake)
set(WEIR_MODULES ${PROJECT_BINARY_DIR}/tests/interpose)

function(weir_interpose_library name)
  cmake_parse_arguments(M "" "" "SOURCES;COMPILE;LINK;LIBS" ${ARGN})
  add_library(${name} SHARED ${M_SOURCES})
  # The dynamic linker calls what chooses an IFUNC before a sanitizer is there.
  target_compile_options(${name} PRIVATE -fno-sanitize=all ${M_COMPILE})
  target_compile_definitions(${name} PRIVATE _GNU_SOURCE)
  target_link_options(${name} PRIVATE ${M_LINK})
  target_link_libraries(${name} PRIVATE ${M_LIBS})
  set_target_properties(${name} PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${WEIR_MODULES} PREFIX "" BUILD_RPATH ${WEIR_MODULES})
endfunction()

weir_interpose_library(imported SOURCES ${CMAKE_CURRENT_LIST_DIR}/provider.c
  LINK -Wl,--version-script=${CMAKE_CURRENT_LIST_DIR}/provider.map)

set(WEIR_INTERPOSE_MODULES)
# weir_interpose_module(NAME [COMPILE …] [LINK …])
function(weir_interpose_module name)
  weir_interpose_library(${name} SOURCES ${PROJECT_SOURCE_DIR}/tests/interpose/module.c LIBS imported ${ARGN})
  list(APPEND WEIR_INTERPOSE_MODULES ${name})
  set(WEIR_INTERPOSE_MODULES ${WEIR_INTERPOSE_MODULES} PARENT_SCOPE)
endfunction()
weir_interpose_module(module-now LINK -Wl,-z,now,-z,relro,--hash-style=gnu)
weir_interpose_module(module-lazy LINK -Wl,-z,lazy,-z,relro,--hash-style=sysv)
weir_interpose_module(module-open LINK -Wl,-z,lazy,-z,norelro,--hash-style=both)
weir_interpose_module(module-no-plt COMPILE -fno-plt LINK -Wl,-z,now,-z,relro)
weir_interpose_module(module-text COMPILE -DMODULE_TEXT_RELOCATION LINK -Wl,-z,notext)
weir_interpose_module(module-defines COMPILE -DMODULE_DEFINES)
weir_interpose_module(module-ifunc COMPILE -DMODULE_IFUNC)
weir_interpose_module(module-addend COMPILE -DMODULE_ADDEND)
weir_interpose_module(module-many COMPILE -DMODULE_MANY)

# One for another machine, which is only read.
find_program(WEIR_ARM64_COMPILER aarch64-linux-gnu-gcc)
if(WEIR_ARM64_COMPILER)
  add_custom_command(OUTPUT ${WEIR_MODULES}/module-arm64.so
    COMMAND ${CMAKE_COMMAND} -E make_directory ${WEIR_MODULES}/arm64
    COMMAND ${WEIR_ARM64_COMPILER} -shared -fPIC -nostdlib -o ${WEIR_MODULES}/arm64/imported.so -Wl,-soname,imported.so
      -Wl,--version-script=${CMAKE_CURRENT_LIST_DIR}/provider.map ${CMAKE_CURRENT_LIST_DIR}/provider.c
    COMMAND ${WEIR_ARM64_COMPILER} -shared -fPIC -nostdlib -o ${WEIR_MODULES}/module-arm64.so
      ${CMAKE_CURRENT_LIST_DIR}/module.c ${WEIR_MODULES}/arm64/imported.so
    DEPENDS ${CMAKE_CURRENT_LIST_DIR}/module.c ${CMAKE_CURRENT_LIST_DIR}/provider.c ${CMAKE_CURRENT_LIST_DIR}/provider.map)
  add_custom_target(module-arm64 DEPENDS ${WEIR_MODULES}/module-arm64.so)
  list(APPEND WEIR_INTERPOSE_MODULES module-arm64)
endif()

function(weir_interpose_test name)
  weir_test(interpose-${name} ${ARGN} LIBS weir_interpose weir_base ${CMAKE_DL_LIBS} Threads::Threads)
  target_include_directories(test-interpose-${name} PRIVATE ${PROJECT_SOURCE_DIR}/src)
  add_dependencies(test-interpose-${name} ${WEIR_INTERPOSE_MODULES})
endfunction()
weir_interpose_test(elf interpose/elf.c)
weir_interpose_test(slots interpose/slots.c)
target_link_options(test-interpose-slots PRIVATE -Wl,-z,now) # its own slots are rewritten, too

# A module as libggml-cuda.so is one, over the stubs of CUDA.
weir_interpose_library(cuda-module SOURCES ${CMAKE_CURRENT_LIST_DIR}/cuda_module.c LIBS stub-cudart stub-cuda
  LINK -Wl,-z,now,-z,relro)
weir_interpose_library(cuda-module-beside SOURCES ${CMAKE_CURRENT_LIST_DIR}/cuda_module.c LIBS stub-cudart stub-cuda
  LINK -Wl,-z,now,-z,relro)
weir_interpose_library(cuda-module-static SOURCES ${CMAKE_CURRENT_LIST_DIR}/cuda_module.c COMPILE -DMODULE_STATIC -Wno-unused-parameter)
weir_interpose_library(cuda-module-per-thread SOURCES ${CMAKE_CURRENT_LIST_DIR}/cuda_module.c
  COMPILE -DMODULE_PER_THREAD LIBS stub-cudart stub-cuda)
set(WEIR_INTERPOSE_CUDA "LD_LIBRARY_PATH=${WEIR_STUB}/cuda;STUB_CUDA_TOTAL=0x10000000;STUB_CUDA_DEVICES=2")
function(weir_interpose_cuda_test name)
  weir_interpose_test(${name} ${ARGN})
  add_dependencies(test-interpose-${name} cuda-module cuda-module-beside cuda-module-static cuda-module-per-thread)
  set_tests_properties(interpose-${name} PROPERTIES ENVIRONMENT "${WEIR_INTERPOSE_CUDA}")
endfunction()
weir_interpose_cuda_test(cuda interpose/cuda.c interpose/cuda_rig.c)
add_dependencies(test-interpose-cuda stub-cublas)
foreach(part order ends scopes several between threads)
  weir_interpose_cuda_test(cuda-${part} interpose/cuda_${part}.c interpose/cuda_rig.c)
endforeach()
set_tests_properties(interpose-cuda-between PROPERTIES SKIP_RETURN_CODE 77) # of builds without windows
# INTERNAL, so that malloc can be led through the test.
weir_interpose_cuda_test(cuda-faults interpose/cuda_faults.c interpose/cuda_rig.c INTERNAL)
target_link_options(test-interpose-cuda-faults PRIVATE ${WEIR_HEAP_WRAPS})

# On a GPU by hand, and here on the stub.
add_executable(test-interpose-gpu ${CMAKE_CURRENT_LIST_DIR}/gpu.c)
target_compile_definitions(test-interpose-gpu PRIVATE _GNU_SOURCE)
target_include_directories(test-interpose-gpu PRIVATE ${PROJECT_SOURCE_DIR}/tests ${PROJECT_SOURCE_DIR}/src)
target_link_libraries(test-interpose-gpu PRIVATE weir weir_test_places weir_interpose weir_base Threads::Threads ${CMAKE_DL_LIBS})
set_target_properties(test-interpose-gpu PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
add_dependencies(test-interpose-gpu cuda-module)
add_test(NAME interpose-gpu-stub COMMAND test-interpose-gpu 5)
set_tests_properties(interpose-gpu-stub PROPERTIES ENVIRONMENT "${WEIR_INTERPOSE_CUDA}")
