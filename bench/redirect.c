/* Two devices joined in the kernel by the smallest BPF programs that there are for it: what comes in by one leaves by the
 * other. For measuring what a way through the kernel costs at best.
 *
 * usage: redirect xdp|tcx|tcx-peer DEVICE DEVICE     until its standard input ends; prints "ready" first
 *
 * xdp       an XDP program redirects frames
 * tcx       a tc program redirects socket buffers to the way out of the other device (bpf_redirect)
 * tcx-peer  a tc program redirects them to the way in of the other device's peer (bpf_redirect_peer)
 * build: cc -O2 -o redirect redirect.c */
#define _GNU_SOURCE
#include "clock.h"
#include <linux/bpf.h>
#include <net/if.h>
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Of linux/bpf.h since 6.6. */
enum { XDP_ATTACH = 37, TCX_INGRESS = 46 };

static int bpf(int command, union bpf_attr *attributes)
{
    return syscall(SYS_bpf, command, attributes, sizeof *attributes);
}

/* A program that returns what `helper(target, 0)` does; attached for as long as this process has the descriptor. */
static void join(const char *from, const char *to, int xdp, int helper)
{
    struct bpf_insn code[] = {
        { .code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_1, .imm = if_nametoindex(to) },
        { .code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_2, .imm = 0 },
        { .code = BPF_JMP | BPF_CALL, .imm = helper },
        { .code = BPF_JMP | BPF_EXIT },
    };
    union bpf_attr load, link;
    memset(&load, 0, sizeof load);
    load.prog_type = xdp ? BPF_PROG_TYPE_XDP : BPF_PROG_TYPE_SCHED_CLS;
    load.expected_attach_type = xdp ? XDP_ATTACH : TCX_INGRESS;
    load.insns = (uintptr_t) code;
    load.insn_cnt = sizeof code / sizeof *code;
    load.license = (uintptr_t) "Apache-2.0";
    if (!code[0].imm) fail(to);
    memset(&link, 0, sizeof link);
    link.link_create.prog_fd = bpf(BPF_PROG_LOAD, &load);
    if ((int) link.link_create.prog_fd < 0) fail("BPF_PROG_LOAD");
    link.link_create.target_ifindex = if_nametoindex(from);
    link.link_create.attach_type = load.expected_attach_type;
    if (!link.link_create.target_ifindex) fail(from);
    if (bpf(BPF_LINK_CREATE, &link) < 0) fail("BPF_LINK_CREATE");
}

int main(int argc, char **argv)
{
    char c;
    int xdp = argc == 4 && !strcmp(argv[1], "xdp"), peer = argc == 4 && !strcmp(argv[1], "tcx-peer");
    if (argc != 4 || !(xdp || peer || !strcmp(argv[1], "tcx"))) {
        fprintf(stderr, "usage: see the top of redirect.c\n");
        return 2;
    }
    for (int i = 0; i < 2; i++) join(argv[2 + i], argv[3 - i], xdp, peer ? BPF_FUNC_redirect_peer : BPF_FUNC_redirect);
    puts("ready");
    fflush(stdout);
    while (read(STDIN_FILENO, &c, 1) > 0) continue;
    puts("{}");
    return 0;
}
