#include "control/agent/measure/own_reach.h"

#include <arpa/inet.h>
#include <poll.h>
#include <string.h>

enum { TURN_MS = 1 };

static bool carry_out(const fl_reach_order *order, fl_reach_answer *answer)
{
    fl_reach_round *round = NULL;
    if (fl_reach_round_begin(&round, order) != FL_OK) {
        return false;
    }
    while (!fl_reach_round_turn(round, answer)) {
        (void)poll(NULL, 0, TURN_MS);
    }
    fl_reach_round_end(&round);
    return true;
}

bool fl_own_reach(const char *address, const uint16_t ports[2], char why[FL_REACH_WHY_MAX + 1])
{
    fl_reach_order order = {.number = 1, .timeout_ms = FL_OWN_REACH_MS, .n = 1};
    fl_reach_answer answer = {.n = 0};
    fl_reach_door door;
    struct in_addr in;
    if (inet_pton(AF_INET, address, &in) != 1 || !fl_reach_door_open(&door, ports)) {
        return true;
    }
    order.target[0] =
        (fl_reach_target){.port = door.port, .is_door = true, .address = ntohl(in.s_addr)};
    bool reached = !carry_out(&order, &answer) || answer.n == 0;
    fl_reach_door_close(&door);
    if (!reached) {
        memcpy(why, answer.why, sizeof answer.why);
    }
    return reached;
}
