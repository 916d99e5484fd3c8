/* border.cpp: the one file in C++: foreign exceptions end here, and the one C++ function of llama.cpp is called.
 *
 * ggml answers what it takes for impossible by ggml_abort, which ends the process. Its callback may throw instead, as
 * long as nobody else depends on the frames that are left: so while a model is loaded, a context made, a text tokenised
 * or a graph built, but not inside a computation, where worker threads wait for this one. */
#include <cstdio>
#include <cstring>
#include <exception>
#include <stdexcept>

#include <llama-ext.h>

#include <weir/base.h>

namespace
{

thread_local int guards = 0;
thread_local bool alone = false;

struct guard {
    guard()
    {
        guards++;
    }
    ~guard()
    {
        guards--;
    }
};

void keep(char *text, size_t capacity, const char *words)
{
    std::snprintf(text, capacity, "%s", words);
}

uint64_t charged(size_t bytes)
{
    return (static_cast<uint64_t>(bytes) + 255) & ~static_cast<uint64_t>(255);
}

} // namespace

extern "C" {

bool wg_guarded(void (*fn)(void *user), void *user, char *text, size_t capacity);
bool wg_guarded_alone(void (*fn)(void *user), void *user, char *text, size_t capacity);
void wg_on_abort(const char *message);
bool wg_breakdown(void *function, const llama_context *context, ggml_backend_buffer_type_t wanted, uint64_t *weights,
                  uint64_t *cache, uint64_t *compute);

bool wg_guarded(void (*fn)(void *user), void *user, char *text, size_t capacity)
{
    guard here;
    try {
        fn(user);
        return true;
    } catch (const std::exception &error) {
        keep(text, capacity, error.what());
    } catch (...) {
        keep(text, capacity, "an exception without words");
    }
    return false;
}

bool wg_guarded_alone(void (*fn)(void *user), void *user, char *text, size_t capacity)
{
    alone = true;
    bool whole = wg_guarded(fn, user, text, capacity);
    alone = false;
    return whole;
}

void wg_on_abort(const char *message)
{
    if (guards > 0 && (alone || !std::strstr(message, "/ggml-cpu/")))
        throw std::runtime_error(message);
    weir_log(WEIR_LOG_ERROR, "gguf: llama.cpp ends the process: %s", message);
    std::fprintf(stderr, "%s\n", message);
}

bool wg_breakdown(void *function, const llama_context *context, ggml_backend_buffer_type_t wanted, uint64_t *weights,
                  uint64_t *cache, uint64_t *compute)
{
    using breakdown = llama_memory_breakdown (*)(const llama_context *);
    *weights = *cache = *compute = 0;
    try {
        breakdown call;
        std::memcpy(&call, &function, sizeof call);
        for (const auto &[type, bytes] : call(context)) {
            if (wanted && type != wanted)
                continue;
            *weights += charged(bytes.model);
            *cache += charged(bytes.context);
            *compute += charged(bytes.compute);
        }
        return true;
    } catch (...) {
        return false;
    }
}
}
