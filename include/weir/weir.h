/* weir.h: the core: one device-memory budget for every inference engine in a process.
 *
 * What an engine or an embedder needs besides has a header of its own: guard.h, trace.h, block_pool.h, plan.h, arena.h,
 * engine.h, cores.h, manifest.h, select.h, model.h, predict.h, onnxruntime.h, and for parts of its own adaptor.h and
 * driver.h. */
#ifndef WEIR_WEIR_H
#define WEIR_WEIR_H

#include <weir/base.h>
#include <weir/runtime.h>
#include <weir/client.h>
#include <weir/stream.h>
#include <weir/memory.h>
#include <weir/uses.h>
#include <weir/pressure.h>
#include <weir/stats.h>

#endif
