/* weir.h: everything. One device-memory budget for every inference engine in a process. */
#ifndef WEIR_WEIR_H
#define WEIR_WEIR_H

#include <weir/base.h>
#include <weir/status.h>
#include <weir/log.h>
#include <weir/options.h>
#include <weir/kind.h>
#include <weir/runtime.h>
#include <weir/stream.h>
#include <weir/resource.h>
#include <weir/parts.h>
#include <weir/client.h>
#include <weir/memory.h>
#include <weir/reserve.h>
#include <weir/graph.h>
#include <weir/uses.h>
#include <weir/refusal.h>
#include <weir/pressure.h>
#include <weir/stats.h>
#include <weir/layout.h>
#include <weir/trim.h>
#include <weir/guard.h>
#include <weir/trace.h>
#include <weir/tensor.h>
#include <weir/blocks.h>
#include <weir/plan_buffers.h>
#include <weir/plan.h>
#include <weir/plan_nodes.h>
#include <weir/parameters.h>
#include <weir/arena_pool.h>
#include <weir/arena.h>
#include <weir/engine.h>
#include <weir/model.h>
#include <weir/versions.h>
#include <weir/hardware.h>
#include <weir/manifest.h>
#include <weir/choice.h>
#include <weir/opening.h>
#include <weir/onnxruntime.h>

#endif
