/* weir/rmm.hpp: a client as a memory resource of RMM's, for C++20 programs with RMM 26.06 or later.
 *
 *     weir::rmm_resource memory{client};
 *     rmm::mr::set_current_device_resource(memory);
 *
 * It is the resource of weir/cccl.hpp, with RMM's errors: a refusal is rmm::out_of_memory with weir's words, and any other
 * failure rmm::bad_alloc, so that what RMM's adaptors and RAPIDS' libraries do after them they do here. Link libweir-seams, and
 * libweir. */
#ifndef WEIR_RMM_HPP
#define WEIR_RMM_HPP

#include <weir/cccl.hpp>

#include <rmm/error.hpp>

namespace weir
{

using rmm_resource = basic_memory_resource<rmm::out_of_memory, rmm::bad_alloc>;

static_assert(cuda::mr::resource_with<rmm_resource, cuda::mr::device_accessible>);

} // namespace weir

#endif
