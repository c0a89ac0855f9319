/* Clusters of several hosts for the planner, and the price of a plan on one. */
#ifndef FL_TESTS_SUPPORT_DATA_CLUSTER_H
#define FL_TESTS_SUPPORT_DATA_CLUSTER_H

#include "support/data/situation.h"

/* 50 us, 10 bytes a microsecond. */
extern const fl_link_cost slow_net;

/* n_hosts equal hosts of `devices` each, with this link between two of them. */
void cluster_between(fl_cluster *c, int n_hosts, int devices, fl_link_cost between);

/* The predicted step of this plan, in microseconds. */
double priced(const situation *s, int K, int R, int M, const int *cuts, const int *device_of);

#endif
