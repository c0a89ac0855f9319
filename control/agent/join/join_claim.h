/* What an agent that asks to join has to meet, whether the gate or the survey answers it. */
#ifndef FL_CONTROL_AGENT_JOIN_JOIN_CLAIM_H
#define FL_CONTROL_AGENT_JOIN_JOIN_CLAIM_H

#include "control/agent/join/host_socket.h"

/* Whether it has the version of this program; else why not. Pure. */
bool fl_join_has_version(const fl_host_join *join, char why[FL_HOST_TEXT_MAX + 1]);

/* Why an agent is refused whose message fl_host_wire_get has just not read, because it is of
 * another version. */
void fl_join_other_version(char why[FL_HOST_TEXT_MAX + 1]);

/* Whether what an agent that is refused has asked holds for host i, whose name it gave: it does not
 * come from the address of another host, as after a mistyped name. Pure. */
bool fl_join_speaks_for(const fl_hosts *hosts, int i, const fl_host_peer *from);

/* The agents with the name of a host that has joined, which ask to take its place. One of them at a
 * time has its turn, and waits for a sign of life of the agent that has joined: if each one that
 * asks began that wait anew, agents that ask in turns would get no answer. */
typedef struct fl_join_rival {
    fl_host_peer peer;          /* has its turn */
    int64_t since_us, asked_us; /* it asked first and last; since_us 0: none asks */
} fl_join_rival;

/* Note that `from` asks. True: it has its turn, which ends, and the agent that has joined, heard
 * last at heard_us, has said something since that turn began, so that it lives. The turn of an
 * agent that asks no more ends, too. Pure. */
bool fl_join_rival_is_refused(fl_join_rival *rival, const fl_host_peer *from, int64_t heard_us,
                              int64_t now_us);

#endif
