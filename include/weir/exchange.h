/* weir/exchange.h: two clients change places: a client leaves the device's memory while another client comes back.
 *
 * The call is weir_client_suspend of the leaving client and weir_client_resume of the coming client (weir/residency.h)
 * at the same time, for a budget that does not hold both. Each piece of the leaving client goes out on a copy stream.
 * When the copy is done, the memory passes to the coming client, whose contents come in on a second stream: both
 * directions of the link are busy. A piece with a good copy that was promised as `unwritten` gives its memory at once.
 * Bytes of the ledger pass in the same steps from client to client, and no third client can have them meanwhile: the
 * budget and guarantees are never exceeded, and the call is not refused for what third clients take after it has
 * begun.
 *
 * The stack must be as for weir_client_suspend. Sizes are bytes. */
#ifndef WEIR_EXCHANGE_H
#define WEIR_EXCHANGE_H

#include <weir/residency.h>

WEIR_BEGIN

/* Suspends `leaves`, which is resident, and resumes `comes`, which is suspended; both of one runtime. `how` (NULL: as
 * it begins) are the options of the suspend, of which `show` is not for this call. What stays of `leaves`, and why, is
 * in the receipt *out (may be NULL). Bytes that `comes` needs beyond those of `leaves` are claimed before a piece
 * passes, climbing the ladder. Pages of elastic blocks of `leaves` are given before the first piece passes, and those
 * of `comes` are committed last.
 *
 * Waits for the work of `leaves` as weir_client_suspend, with `how->wait`, and for its copies, never for the device.
 * Work that is queued on `stream` after the return finds the contents of `comes`, as after weir_client_resume;
 * WEIR_STREAM_HOST: they are there at return. The caller makes sure that nothing else touches the memory of `leaves`.
 *
 * All or nothing: on failure `comes` is suspended as before, and `leaves` is resident with the same contents, as
 * pieces that had left have come back; contents of the classes `how->drop` may be zeros. One exception: a driver or
 * host memory that fails a second time then, a page of an elastic block whose memory a third client has taken by then,
 * or third clients whose new blocks have left no whole pieces free, leaves `leaves` suspended, with nothing lost; weir_client_residency tells, and weir_client_resume brings it
 * back. Memory that the driver did not take back from under `comes` is free for other clients after the next resume of
 * `comes`, even one that is refused. The next suspend may have to copy again what had good copies.
 *
 * Errors: those of weir_client_suspend for `leaves` and of weir_client_resume for `comes`; WEIR_ERR_BUSY also if
 * `leaves` is not resident, or `comes` is not suspended or on its way on another thread; WEIR_ERR_INVALID also for one
 * client twice, clients of two runtimes, and `how->show`. Any thread. */
WEIR_API WEIR_NODISCARD weir_status weir_client_exchange(weir_client *leaves, const weir_suspend_options *how,
                                                         weir_client *comes, weir_stream stream, weir_residency *out);

WEIR_END
#endif
