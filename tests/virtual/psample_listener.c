/* Joins psample, a multicast group of generic netlink, and prints each message as a line of hexadecimal digits, without the
 * headers of netlink and generic netlink.
 *
 * usage: psample-listener COUNT SECONDS
 *
 * It prints "ready" first, and ends after COUNT messages, or with status 1 after SECONDS. */

#include <linux/genetlink.h>
#include <linux/netlink.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static char buffer[1 << 17];

static void fail(const char *what)
{
	perror(what);
	exit(1);
}

/* The value of an attribute of this type among `len` bytes, or NULL. */
static const void *value(const char *at, int len, int type)
{
	while (len >= NLA_HDRLEN) {
		const struct nlattr *attr = (const struct nlattr *)at;
		int whole = NLA_ALIGN(attr->nla_len);
		if (attr->nla_len < NLA_HDRLEN)
			return NULL;
		if ((attr->nla_type & NLA_TYPE_MASK) == type)
			return at + NLA_HDRLEN;
		at += whole;
		len -= whole;
	}
	return NULL;
}

static int value_len(const void *value)
{
	return ((const struct nlattr *)((const char *)value - NLA_HDRLEN))->nla_len - NLA_HDRLEN;
}

/* The number of the group "packets" of the family "psample". */
static int group_of(int fd)
{
	struct {
		struct nlmsghdr nl;
		struct genlmsghdr genl;
		struct nlattr attr;
		char name[8];
	} request = {
		.nl = {.nlmsg_len = sizeof request, .nlmsg_type = GENL_ID_CTRL, .nlmsg_flags = NLM_F_REQUEST},
		.genl = {.cmd = CTRL_CMD_GETFAMILY, .version = 1},
		.attr = {.nla_len = NLA_HDRLEN + sizeof request.name, .nla_type = CTRL_ATTR_FAMILY_NAME},
		.name = "psample",
	};
	if (send(fd, &request, sizeof request, 0) < 0)
		fail("send");
	int n = recv(fd, buffer, sizeof buffer, 0);
	if (n < NLMSG_HDRLEN + GENL_HDRLEN || ((struct nlmsghdr *)buffer)->nlmsg_type != GENL_ID_CTRL) {
		fprintf(stderr, "the kernel has no psample\n");
		exit(1);
	}
	const char *groups = value(buffer + NLMSG_HDRLEN + GENL_HDRLEN, n - NLMSG_HDRLEN - GENL_HDRLEN, CTRL_ATTR_MCAST_GROUPS);
	int left = groups ? value_len(groups) : 0;
	while (left >= NLA_HDRLEN) {
		const struct nlattr *group = (const struct nlattr *)groups;
		const char *inside = groups + NLA_HDRLEN;
		const char *name = value(inside, group->nla_len - NLA_HDRLEN, CTRL_ATTR_MCAST_GRP_NAME);
		const int *id = value(inside, group->nla_len - NLA_HDRLEN, CTRL_ATTR_MCAST_GRP_ID);
		if (name && id && !strcmp(name, "packets"))
			return *id;
		groups += NLA_ALIGN(group->nla_len);
		left -= NLA_ALIGN(group->nla_len);
	}
	fprintf(stderr, "psample has no group \"packets\"\n");
	exit(1);
}

int main(int argc, char **argv)
{
	if (argc != 3) {
		fprintf(stderr, "usage: psample-listener COUNT SECONDS\n");
		return 2;
	}
	int fd = socket(AF_NETLINK, SOCK_RAW, NETLINK_GENERIC);
	if (fd < 0)
		fail("socket");
	int group = group_of(fd);
	if (setsockopt(fd, SOL_NETLINK, NETLINK_ADD_MEMBERSHIP, &group, sizeof group) < 0)
		fail("NETLINK_ADD_MEMBERSHIP");
	alarm(atoi(argv[2]));
	puts("ready");
	fflush(stdout);
	for (int left = atoi(argv[1]); left > 0; left--) {
		int n = recv(fd, buffer, sizeof buffer, 0);
		if (n < 0)
			fail("recv");
		for (int i = NLMSG_HDRLEN + GENL_HDRLEN; i < n; i++)
			printf("%02x", (unsigned char)buffer[i]);
		puts("");
		fflush(stdout);
	}
	return 0;
}
