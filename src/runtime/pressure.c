/* weir/pressure.h: callbacks belong to the ledger that they can make room in. */
#include "runtime/runtime.h"

weir_status weir_pressure_register(weir_runtime *runtime, int priority, weir_pressure_fn fn, void *user, uint64_t *id)
{
    WI_ENTER();
    if (!runtime || !fn || !id)
        return weir_fail(WEIR_ERR_INVALID, "weir_pressure_register: NULL");
    return wi_pressures_add(&runtime->ledger.pressures, priority, fn, user, id);
}

weir_status weir_pressure_unregister(weir_runtime *runtime, uint64_t id)
{
    WI_ENTER();
    if (!runtime)
        return weir_fail(WEIR_ERR_INVALID, "weir_pressure_unregister: NULL");
    return wi_pressures_remove(&runtime->ledger.pressures, id, false);
}
