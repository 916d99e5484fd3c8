# The factory: what the machine has, what a model will take, which engine, provider and device it gets, and the model that is open.
foreach(file registry
  hardware/look hardware/probe hardware/source hardware/nvml hardware/cuda hardware/pci hardware/numbering hardware/merge
  predict/records predict/contents predict/forecast predict/gguf
  choice/criteria choice/engines choice/candidates choice/verdicts choice/rank choice/explanation choice/choice choice/predict
  model/call model/good model/instance model/model model/coming model/residency model/runs model/open model/failover model/attempts)
  list(APPEND WEIR_SOURCES ${CMAKE_CURRENT_LIST_DIR}/${file}.c)
endforeach()
