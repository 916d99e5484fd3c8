# The contract of a resource, on every stack and every device.
include(${PROJECT_SOURCE_DIR}/tests/stub/tests.cmake)

# A new stack is a line here. The latency beside another's kernel is no promise of `direct`, which asks the driver for each
# block (cuMemFree waits for the whole device).
set(WEIR_CONTRACT_STACKS
  "mapped"
  "segments"
  "direct"
  "async"
  "budget(log(async))"
  "log(budget(async))"
  "guard(mapped)"
  "guard(direct)"
  "log(mapped)"
  "log(guard(direct))"
  "guard(log(async))"
)

# weir_contract_test(SUITE DEVICE STACK PROGRAM ARGUMENTS…)
function(weir_contract_test suite device stack)
  string(REGEX REPLACE "[^A-Za-z0-9]+" "-" part "${stack}")
  string(REGEX REPLACE "-$" "" part "${part}")
  set(name ${suite}-${part}-${device})
  set(labels_of_cuda gpu)
  set(labels_of_sim sim)
  add_test(NAME ${name} COMMAND ${ARGN} ${stack})
  set_tests_properties(${name} PROPERTIES SKIP_RETURN_CODE 77 LABELS "resources;${labels_of_${device}}")
  if(device STREQUAL stub)
    set_tests_properties(${name} PROPERTIES ENVIRONMENT
      "LD_LIBRARY_PATH=${WEIR_STUB}/cuda;STUB_CUDA_TOTAL=0x40000000")
  endif()
endfunction()

# weir_contract_program(NAME LIBRARY SOURCES…): its tests are all added below.
function(weir_contract_program name library)
  add_executable(test-${name} ${ARGN} resources/contract_common.c resources/contract_device.c)
  target_compile_definitions(test-${name} PRIVATE _GNU_SOURCE)
  target_include_directories(test-${name} PRIVATE ${PROJECT_SOURCE_DIR}/tests)
  target_link_libraries(test-${name} PRIVATE ${library} PkgConfig::CMOCKA ${CMAKE_DL_LIBS} Threads::Threads)
  set_target_properties(test-${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
endfunction()

set(parts contract)
foreach(part blocks misuse order uses limits resize runtime threads model)
  list(APPEND parts contract_${part})
endforeach()
list(TRANSFORM parts REPLACE "(.+)" "resources/\\1.c")
set(toy ${PROJECT_SOURCE_DIR}/examples/own-driver/toy.c)
weir_contract_program(contract weir ${parts} driver/device.c ${toy})
weir_contract_program(latency weir resources/latency.c driver/device.c ${toy})
target_include_directories(test-contract PRIVATE ${PROJECT_SOURCE_DIR}/examples)
target_include_directories(test-latency PRIVATE ${PROJECT_SOURCE_DIR}/examples)
add_dependencies(test-contract stub-cuda)
add_dependencies(test-latency stub-cuda)
# The simulated device is told how to be, which needs its own header.
weir_contract_program(contract-sim weir_objects ${parts})
target_link_libraries(test-contract-sim PRIVATE weir_sim_device)
target_compile_definitions(test-contract-sim PRIVATE CONTRACT_SIMULATED)
target_include_directories(test-contract-sim PRIVATE ${PROJECT_SOURCE_DIR}/src)

foreach(stack IN LISTS WEIR_CONTRACT_STACKS)
  foreach(device host stub cuda)
    weir_contract_test(contract ${device} ${stack} test-contract ${device})
    if(NOT stack MATCHES "direct")
      weir_contract_test(latency ${device} ${stack} test-latency ${device})
    endif()
  endforeach()
  if(NOT stack MATCHES "guard") # whose zones have no bytes there that it could look at
    weir_contract_test(contract sim ${stack} test-contract-sim)
  endif()
endforeach()

# Over a driver of the program's own, which has neither mappings nor pools.
foreach(stack segments direct "guard(direct)" "log(segments)" "counts(budget(segments))")
  weir_contract_test(contract toy ${stack} test-contract toy)
endforeach()

# Under an adaptor of the program's own, which sees as many blocks freed as allocated.
foreach(stack "counts(mapped)" "counts(budget(async))")
  foreach(device host stub)
    weir_contract_test(contract ${device} ${stack} test-contract ${device})
  endforeach()
  weir_contract_test(contract sim ${stack} test-contract-sim)
endforeach()

# Once more, with freed blocks kept by thread caches: the base that can do that.
foreach(device host stub cuda sim)
  set(arguments test-contract ${device})
  if(device STREQUAL sim)
    set(arguments test-contract-sim)
  endif()
  weir_contract_test(contract-thread-cache ${device} mapped ${arguments})
  set_property(TEST contract-thread-cache-mapped-${device} APPEND PROPERTY ENVIRONMENT "WEIR_THREAD_CACHE=1MiB")
endforeach()

# The tests of single bases and adaptors.
include(${CMAKE_CURRENT_LIST_DIR}/bases.cmake OPTIONAL)
include(${CMAKE_CURRENT_LIST_DIR}/adaptors.cmake OPTIONAL)

weir_test(resources-own-base resources/own_base.c)
weir_test(resources-own-adaptor resources/own_adaptor.c)
weir_test(resources-own-base-pool resources/own_base_pool.c
  ENVIRONMENT "LD_LIBRARY_PATH=${WEIR_STUB}/cuda;STUB_CUDA_TOTAL=0x40000000")
add_dependencies(test-resources-own-base-pool stub-cuda)
