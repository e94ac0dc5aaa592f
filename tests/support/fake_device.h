/* A stand-in for a GPU: fills the table of backend/device.h on the host, with the CPU backend's
 * functions, under the name "fake". It is stricter than a GPU, so that mistakes show without one:
 *   addresses   Device memory cannot be read or written through its addresses (PROT_NONE; the
 *               device itself sees it elsewhere). Every access is checked against live
 *               allocations; one outside ends the process with a text.
 *   streams     Nothing runs before someone waits for it, so that a missing wait or order is seen.
 *               What a queued copy reads is read then.
 *   failures    The n-th call, or the n-th piece of queued work, can be made to fail. */
#ifndef TEST_FAKE_DEVICE_H
#define TEST_FAKE_DEVICE_H

#include <stdbool.h>
#include <stdint.h>

/* Makes the backend "fake" known. Devices 0 and 1. */
void fake_device_register(void);

#define FAKE_ERROR 719
#define FAKE_NO_MEMORY 2
/* The n-th call from now (0: the next) that can fail does nothing and gives FAKE_ERROR; or only
 * calls for memory are counted, and it gives FAKE_NO_MEMORY. Negative: none. */
void fake_device_fail_call(int64_t n);
void fake_device_fail_memory(int64_t n);
/* The n-th piece of queued work from now fails; from then on the device is dead: every call says
 * so, until this is called again. */
void fake_device_fail_work(int64_t n);
/* Whether a failure has been made since the last call of one of these. */
bool fake_device_failed(void);
/* Bytes that were copied from one device to another, or to another context of the same. */
uint64_t fake_device_peer_bytes(void);
/* Allocations, pinned ones, streams and events that are open. */
uint64_t fake_device_open_things(void);

#endif
