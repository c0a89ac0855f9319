/* Which devices of a machine have the better links between them. Where workers compute on
 * processors, the processors of a worker are its device. */
#ifndef FL_DEVICE_MACHINE_ISLANDS_H
#define FL_DEVICE_MACHINE_ISLANDS_H

#include "device/machine/survey.h"

/* What the devices of an island have in common. */
typedef enum fl_island_kind {
    FL_ISLAND_ALL,    /* there is one island: no link is known to be better than another */
    FL_ISLAND_NVLINK, /* every pair of an island is linked by NVLink */
    FL_ISLAND_NUMA,   /* they hang on processors of one NUMA node */
    FL_ISLAND_SOCKET, /* they are processors of one socket */
} fl_island_kind;

typedef struct fl_islands {
    fl_island_kind kind;
    int n;
    int of[FL_SURVEY_PROCESSORS_MAX]; /* device to island, numbered by their first devices */
} fl_islands;

/* By NVLink, if some pairs have it and others do not; else by NUMA nodes, if all are known and
 * differ; else one island. A device joins the first island all of whose devices it is linked to.
 * Without devices to share: by the sockets of the survey's seats. Pure. */
void fl_islands_find(const fl_device_survey *survey, fl_islands *out);

/* The devices that islands are found of: those that workers share, or the survey's seats. Pure. */
int fl_islands_n_devices(const fl_device_survey *survey);

/* The first two devices below `limit` that share an island, and the first two that do not.
 * *a -1: there are none. Pure. */
void fl_islands_near_pair(const fl_islands *islands, int limit, int *a, int *b);
void fl_islands_far_pair(const fl_islands *islands, int limit, int *a, int *b);

enum { FL_ISLANDS_TEXT = 320 };

/* "NVLink within 0, 2 | 1, 3"; "" for one island. Returns text. */
const char *fl_islands_text(const fl_islands *islands, int n_devices, char text[FL_ISLANDS_TEXT]);

#endif
