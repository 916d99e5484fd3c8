# The choice of engine, provider and device, over machines and engines that the tests make up.
weir_test(choice choice/choice.c choice/machine.c INTERNAL)
weir_test(choice-random choice/random.c choice/oracle.c choice/machine.c INTERNAL)
weir_test(choice-obtainable choice/obtainable.c choice/machine.c INTERNAL)
