/* What a pool may take of a device: the budget, or what other processes leave of it, less the bytes of clients that are no models
 * of the pool. */
#include "pool/pool.h"
#include "base/system.h"
#include "runtime/outside.h"
#include "runtime/runtime.h"

#include <weir/pressure.h>
#include <weir/stats.h>

enum { LOOK_NS = 1000000 }; /* a look is good for so long */

/* All clients; NULL: no host memory, or the runtime does not answer. */
static weir_client_stats *clients_of(weir_runtime *runtime, size_t *count)
{
    size_t room = 16;
    for (;;) {
        weir_client_stats *all = calloc(room, sizeof *all);
        if (!all)
            return NULL;
        weir_stats stats = WEIR_INIT(weir_stats);
        all[0].struct_size = sizeof *all;
        if (weir_snapshot(runtime, &stats, all, room, count) != WEIR_OK) {
            free(all);
            return NULL;
        }
        if (*count <= room)
            return all;
        free(all);
        room = *count + 8;
    }
}

static uint64_t ceiling_has(const weir_client_stats *client)
{
    return client->live + client->pending + client->promised;
}

static bool ceiling_of(const weir_pool *pool, weir_runtime *runtime, uint64_t *out)
{
    weir_runtime_details details = WEIR_INIT(weir_runtime_details);
    size_t count;
    weir_client_stats *all = clients_of(runtime, &count);
    if (!all)
        return false;
    wi_outside_need(runtime);
    bool good = weir_runtime_info(runtime, &details) == WEIR_OK;
    uint64_t left = wi_min(details.budget, wi_outside_allows(runtime));
    for (size_t i = 0; i < count; i++)
        if (wi_client_owner(all[i].client) != pool)
            left -= wi_min(left, wi_max(ceiling_has(&all[i]), all[i].guaranteed));
    free(all);
    *out = left;
    return good;
}

/* Looks of several threads may end in another order than they began: an older answer is not taken. */
void wi_pool_look(weir_pool *pool, uint32_t number, bool at_once)
{
    wi_pool_device *device = &pool->devices[number];
    uint64_t ceiling, now = wi_now();
    pthread_mutex_lock(&pool->lock);
    bool due = at_once || device->looked == 0 || now - device->looked >= LOOK_NS;
    uint64_t look = due ? ++device->looks : 0;
    if (due)
        device->looked = now;
    pthread_mutex_unlock(&pool->lock);
    if (!due || !ceiling_of(pool, device->runtime, &ceiling))
        return;
    pthread_mutex_lock(&pool->lock);
    bool news = look > device->answered && ceiling != device->ceiling;
    if (look > device->answered)
        device->answered = look;
    if (news) {
        wp_event event = {.kind = WP_EVENT_CEILING, .device = number, .bytes = ceiling};
        device->ceiling = ceiling;
        wi_pool_decide(pool, &event);
    }
    pthread_mutex_unlock(&pool->lock);
}

/* Another process wants memory: the machine hears that the ceiling is lower, and has idle models leave by the pool's threads. A
 * request of this process's is no news to it. */
static void ceiling_on_pressure(const weir_pressure *pressure, void *user)
{
    const wi_pool_device *device = user;
    if (!pressure->client)
        wi_pool_look(device->pool, (uint32_t)(device - device->pool->devices), true);
}

weir_status wi_pool_listen(weir_pool *pool, uint32_t number)
{
    wi_pool_device *device = &pool->devices[number];
    device->pool = pool;
    return weir_pressure_register(device->runtime, 0, ceiling_on_pressure, device, &device->pressure);
}

void wi_pool_listen_no_more(weir_pool *pool)
{
    for (uint32_t i = 0; pool->devices && i < pool->device_count; i++)
        if (pool->devices[i].pressure != 0 &&
            weir_pressure_unregister(pool->devices[i].runtime, pool->devices[i].pressure) != WEIR_OK)
            weir_log(WEIR_LOG_ERROR, "a pool's pressure callback stays: %s", weir_detail());
}

wi_pool_account *wi_pool_accounts(const weir_pool *pool, weir_runtime *runtime, size_t *count)
{
    size_t clients, used = 0;
    weir_client_stats *all = clients_of(runtime, &clients);
    wi_pool_account *accounts = all ? calloc(clients + 1, sizeof *accounts) : NULL;
    for (size_t i = 0; accounts && i < clients; i++) {
        if (wi_client_owner(all[i].client) == pool)
            continue;
        accounts[used] = (wi_pool_account){.client = all[i].client, .live = all[i].live};
        memcpy(accounts[used++].name, all[i].name, sizeof accounts->name);
    }
    free(all);
    *count = used;
    return accounts;
}
