/* Whether to register buffers with NCCL. */
#ifndef FL_AUTODP_NCCL_REGISTRATION_H
#define FL_AUTODP_NCCL_REGISTRATION_H

#include <stdbool.h>
#include <stdint.h>

/* Whether registration of `bytes` takes no longer than it saves within a thousand steps, given that
 * it took took_us for of_bytes before; 0: nobody has measured it, so it is tried. Pure. */
bool fl_nccl_registration_pays(int64_t took_us, int64_t of_bytes, int64_t bytes);

#endif
