/*
 * Adds a session (a PDP context of version 1) to a GTP device of Linux, which iproute2 cannot do: the generic netlink
 * family "gtp" (linux/gtp.h).
 *
 * usage: gtp-session DEVICE PEER USER KEY-IN KEY-OUT
 *   PEER is the IPv4 address of the other end, USER the inner address of the device behind it; packets arrive with
 *   KEY-IN and leave with KEY-OUT.
 */
#include <arpa/inet.h>
#include <linux/genetlink.h>
#include <linux/gtp.h>
#include <net/if.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

struct request {
    struct nlmsghdr header;
    struct genlmsghdr generic;
    char attributes[256];
};

static int failed(const char *what)
{
    perror(what);
    exit(1);
}

static void begin(struct request *request, uint16_t family, uint8_t command)
{
    memset(request, 0, sizeof *request);
    request->header.nlmsg_len = NLMSG_LENGTH(GENL_HDRLEN);
    request->header.nlmsg_type = family;
    request->header.nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK;
    request->generic.cmd = command;
}

static void add(struct request *request, uint16_t type, const void *value, size_t length)
{
    struct nlattr *attribute = (void *)((char *)request + NLMSG_ALIGN(request->header.nlmsg_len));

    attribute->nla_type = type;
    attribute->nla_len = NLA_HDRLEN + length;
    memcpy(attribute + 1, value, length);
    request->header.nlmsg_len = NLMSG_ALIGN(request->header.nlmsg_len) + NLA_ALIGN(attribute->nla_len);
}

static void add_number(struct request *request, uint16_t type, uint32_t value)
{
    add(request, type, &value, sizeof value);
}

static void add_address(struct request *request, uint16_t type, const char *text)
{
    struct in_addr address;

    if (!inet_aton(text, &address))
        failed(text);
    add(request, type, &address, sizeof address);
}

/* Sends a request and reads until its acknowledgement; returns the family's number if an answer has one. */
static uint16_t ask(int netlink, struct request *request)
{
    char answer[8192];
    uint16_t family = 0;

    if (send(netlink, request, request->header.nlmsg_len, 0) < 0)
        failed("send");
    for (;;) {
        int left = recv(netlink, answer, sizeof answer, 0);

        if (left < 0)
            failed("recv");
        for (struct nlmsghdr *message = (void *)answer; NLMSG_OK(message, left); message = NLMSG_NEXT(message, left)) {
            if (message->nlmsg_type == NLMSG_ERROR) {
                int error = ((struct nlmsgerr *)NLMSG_DATA(message))->error;

                if (error) {
                    fprintf(stderr, "gtp-session: %s\n", strerror(-error));
                    exit(1);
                }
                return family;
            }
            char *at = (char *)NLMSG_DATA(message) + GENL_HDRLEN, *end = (char *)message + message->nlmsg_len;
            while (at + NLA_HDRLEN <= end) {
                struct nlattr *attribute = (void *)at;

                if (attribute->nla_len < NLA_HDRLEN)
                    break;
                if (attribute->nla_type == CTRL_ATTR_FAMILY_ID)
                    memcpy(&family, attribute + 1, sizeof family);
                at += NLA_ALIGN(attribute->nla_len);
            }
        }
    }
}

int main(int argc, char **argv)
{
    struct request request;
    int netlink = socket(AF_NETLINK, SOCK_RAW, NETLINK_GENERIC);
    uint16_t family;

    if (argc != 6) {
        fprintf(stderr, "usage: gtp-session DEVICE PEER USER KEY-IN KEY-OUT\n");
        return 2;
    }
    if (netlink < 0)
        failed("socket");
    begin(&request, GENL_ID_CTRL, CTRL_CMD_GETFAMILY);
    add(&request, CTRL_ATTR_FAMILY_NAME, "gtp", sizeof "gtp");
    family = ask(netlink, &request);

    begin(&request, family, GTP_CMD_NEWPDP);
    add_number(&request, GTPA_LINK, if_nametoindex(argv[1]));
    add_number(&request, GTPA_VERSION, GTP_V1);
    add_address(&request, GTPA_PEER_ADDRESS, argv[2]);
    add_address(&request, GTPA_MS_ADDRESS, argv[3]);
    add_number(&request, GTPA_I_TEI, strtoul(argv[4], NULL, 0));
    add_number(&request, GTPA_O_TEI, strtoul(argv[5], NULL, 0));
    ask(netlink, &request);
    close(netlink);
    return 0;
}
