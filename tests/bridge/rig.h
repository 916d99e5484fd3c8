/* A bridge over the stub of CUDA and a fake ONNX Runtime: native streams of somebody's own, gates on them, and a
 * refusal that comes back to C. */
#ifndef TESTS_BRIDGE_RIG_H
#define TESTS_BRIDGE_RIG_H

#include "fake.h"
#include <weir/onnxruntime.h>

#include "onnx/bridge/bridge.h"
#include "driver/cuda_api.h"
#include "stub/cuda/control.h"

/* The bridge is the client's `a`, who has no streams or the known one. */
typedef struct fixture {
    weir_runtime *runtime;
    weir_client *a, *b;
    weir_onnxruntime *bridge;
    ort_allocator *table;
    weir_stream known;
} fixture;

typedef struct stub_control {
#define X(type, name, parameters) type(*name) parameters;
    STUB_CONTROLS(X)
#undef X
} stub_control;

enum { BYTES = 4 * 1024 * 1024 }; /* more than half of a budget of 6 MiB */

extern stub_control control;
extern int errors, warnings; /* messages since the fixture began, */
extern char said[512];       /* and the last one */
extern jmp_buf refused_at;   /* where a refusal comes back to, instead of as an exception, which C cannot catch */

void jump(void); /* what a bridge has to call instead of throwing */
int rig_find_stub(void **state);

fixture begin_on(weir_runtime *runtime, bool known);
fixture begin(uint64_t budget, bool known);
void end(fixture *f); /* everything is given back, the streams as well */
weir_onnxruntime_details stats(const fixture *f);

/* Native streams. */
void enter(const fixture *f);
void leave(void);
void *make_native(const fixture *f);
void drop_native(const fixture *f, void *native);
void hold(const fixture *f, void *native, gate *g);
void fill(const fixture *f, void *native, void *to, unsigned char value, size_t bytes);
void synchronize(const fixture *f, void *native);
bool holds(const void *block, unsigned char value, size_t bytes);
void *alloc_on(const fixture *f, void *native, size_t bytes);

#endif
