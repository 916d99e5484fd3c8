# What everything stands on, piece by piece.
foreach(base_test biased bitmap duration edit_distance hash keywords make_room model_path pointer_map status string_pool treap)
  string(REPLACE _ - name base-${base_test})
  weir_test(${name} base/${base_test}.c INTERNAL)
endforeach()
