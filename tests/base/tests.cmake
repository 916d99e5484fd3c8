# What everything stands on, piece by piece.
foreach(base_test biased bitmap edit_distance treap)
  string(REPLACE _ - name base-${base_test})
  weir_test(${name} base/${base_test}.c INTERNAL)
endforeach()
