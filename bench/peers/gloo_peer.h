/* Gloo's own ring all-reduce behind a C face. */
#ifndef FL_BENCH_PEERS_GLOO_PEER_H
#define FL_BENCH_PEERS_GLOO_PEER_H

#include "autodp/net/net.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct gloo_peer gloo_peer;

gloo_peer *gloo_peer_open(int rank, int size, const fl_kv *kv);
void gloo_peer_allreduce(gloo_peer *peer, float *data, size_t n);
void gloo_peer_close(gloo_peer *peer);

#ifdef __cplusplus
}
#endif

#endif
