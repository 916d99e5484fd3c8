# Plans: what the lists of buffers and the planner promise.
foreach(plan_test rules property graph files)
  weir_test(plan-${plan_test} plan/${plan_test}.c)
endforeach()
