/* Ways to give the places of a plan to the devices of a cluster. Pure. */
#ifndef FL_PIPE_PLAN_LAYOUTS_H
#define FL_PIPE_PLAN_LAYOUTS_H

#include "pipe/cost/cluster.h"

enum {
    FL_LAYOUT_ORDERS = 5,
    FL_FEW_LAYOUTS = 64, /* as many as this: each is listed */
    FL_FEW_PLACES = 8
};

/* The devices of a cluster by host, once for all K and R. About 30 KiB. */
typedef struct fl_layout_hosts {
    const fl_cluster *cluster;                   /* borrowed */
    int device[FL_MAX_WORKERS];                  /* host by host */
    int first[FL_MAX_WORKERS + 1];               /* of each host in device[] */
    int order[FL_LAYOUT_ORDERS][FL_MAX_WORKERS]; /* of the hosts */
    int n_orders;
} fl_layout_hosts;

void fl_layout_hosts_init(fl_layout_hosts *hosts, const fl_cluster *cluster);

/* The layouts of one K and R, one after the other. */
typedef struct fl_layouts {
    const fl_layout_hosts *hosts; /* borrowed */
    int K, R;
    int block, order; /* of the next one; block 0: all blocks were listed */
    int n_few, i_few; /* those of few places; the next one */
    unsigned char few[FL_FEW_LAYOUTS][FL_FEW_PLACES]; /* the group of each place */
} fl_layouts;

/* K * R must be at most the number of devices. */
void fl_layouts_init(fl_layouts *layouts, const fl_layout_hosts *hosts, int K, int R);

/* The next layout: device_of[r * K + k] has stage k of replica r. Returns false after the last.
 *
 * Hosts are filled in blocks of b stages of one replica, for b = K, K / 2, K / 4 ... 1; a block
 * lies in one host if there is one with room for it. With b = K pipelines stay within hosts; with
 * b = 1 the owners of each stage do. 2 hosts of 4 devices, K = 4, R = 2 (rs: replica r, stage s):
 *
 *     b = 4   host 0: 00 01 02 03   host 1: 10 11 12 13
 *     b = 2   host 0: 00 01 10 11   host 1: 02 03 12 13
 *
 * Where hosts differ, each is listed with hosts in the order of the cluster, fastest first, slowest
 * first, largest memory first and most devices first. Where there are few ways, all of them are
 * listed too. */
bool fl_layouts_next(fl_layouts *layouts, int *device_of);

/* Skip the rest of the blocks and all that would be listed because there are few. */
void fl_layouts_stop(fl_layouts *layouts);

#endif
