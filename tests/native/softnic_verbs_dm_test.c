/* SPDX-License-Identifier: BSD-3-Clause */
/* Device memory: what is given out and refused, access by the host and by both directions of a queue pair, who holds what when. */
#include <signal.h>
#include <sys/wait.h>

#include "softnic_verbs.h"

#define SIZE (256u << 10)
#define ACCESS (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ZERO_BASED)

static struct side a, b;
static uint8_t frame[SIDE_BUF];
static const struct udp4 udp = { .src = 1, .dst = 2, .sport = 3, .dport = 4 };

static struct ibv_dm *alloc_aligned(struct ibv_context *ctx, size_t length, uint32_t log_align)
{
	struct ibv_alloc_dm_attr attr = { .length = length, .log_align_req = log_align };

	errno = 0;
	return ibv_alloc_dm(ctx, &attr);
}

static struct ibv_dm *alloc(struct ibv_context *ctx, size_t length)
{
	return alloc_aligned(ctx, length, 0);
}

static bool refused(struct ibv_dm *dm, int err)
{
	return !dm && errno == err;
}

static struct ibv_mr *reg(struct ibv_dm *dm, uint64_t offset, size_t length, unsigned int access)
{
	errno = 0;
	return ibv_reg_dm_mr(a.pd, dm, offset, length, access);
}

static bool mr_refused(struct ibv_mr *mr)
{
	return !mr && errno == EINVAL;
}

TEST(what_is_given_out)
{
	struct ibv_alloc_dm_attr attr = { .length = 64, .comp_mask = 1 };
	struct ibv_device_attr_ex ex;
	struct ibv_dm *dm[4];

	side_open(&a, 0);
	CHECK_EQ(ibv_query_device_ex(a.ctx, NULL, &ex), 0);
	CHECK_EQ(ex.max_dm_size, SIZE);
	CHECK(refused(ibv_alloc_dm(a.ctx, &attr), EINVAL));
	CHECK(refused(alloc(a.ctx, 0), EINVAL));
	CHECK(refused(alloc(a.ctx, SIZE + 1), EINVAL));
	CHECK(refused(alloc_aligned(a.ctx, 64, 13), EINVAL));
	dm[0] = alloc(a.ctx, SIZE);
	CHECK(dm[0]);
	CHECK(dm[0]->context == a.ctx);
	CHECK(refused(alloc(a.ctx, 1), ENOMEM));
	CHECK_EQ(ibv_free_dm(dm[0]), 0);
	/* In units of 64 bytes. */
	dm[0] = alloc(a.ctx, SIZE - 128 + 1);
	dm[1] = alloc_aligned(a.ctx, 1, 12);
	CHECK(dm[0] && dm[1] && dm[0]->handle != dm[1]->handle);
	CHECK(refused(alloc(a.ctx, 1), ENOMEM));
	CHECK_EQ(ibv_free_dm(dm[1]), 0);
	dm[1] = alloc(a.ctx, 64);
	CHECK(dm[1]);
	CHECK_EQ(ibv_free_dm(dm[0]), 0);
	CHECK_EQ(ibv_free_dm(dm[1]), 0);
	side_close(&a);
}

TEST(host_access)
{
	uint8_t in[256], out[256];
	struct ibv_dm *dm;

	side_open(&a, 0);
	dm = alloc(a.ctx, 200);
	CHECK(dm);
	for (uint32_t i = 0; i < sizeof(in); i++)
		in[i] = (uint8_t)(i * 3 + 1);
	CHECK_EQ(ibv_memcpy_to_dm(dm, 0, in, 200), 0);
	CHECK_EQ(ibv_memcpy_to_dm(dm, 100, in, 20), 0);
	memset(out, 0, sizeof(out));
	CHECK_EQ(ibv_memcpy_from_dm(out, dm, 0, 200), 0);
	CHECK_EQ(memcmp(out, in, 100), 0);
	CHECK_EQ(memcmp(out + 100, in, 20), 0);
	CHECK_EQ(memcmp(out + 120, in + 120, 80), 0);
	CHECK_EQ(ibv_memcpy_from_dm(out, dm, 196, 4), 0);
	CHECK_EQ(memcmp(out, in + 196, 4), 0);
	CHECK_EQ(ibv_memcpy_to_dm(dm, 200, in, 0), 0);
	/* Words of four bytes, within what was asked for. */
	CHECK_EQ(ibv_memcpy_to_dm(dm, 2, in, 4), EINVAL);
	CHECK_EQ(ibv_memcpy_to_dm(dm, 0, in, 6), EINVAL);
	CHECK_EQ(ibv_memcpy_from_dm(out, dm, 1, 4), EINVAL);
	CHECK_EQ(ibv_memcpy_from_dm(out, dm, 0, 3), EINVAL);
	CHECK_EQ(ibv_memcpy_to_dm(dm, 0, in, 204), EFAULT);
	CHECK_EQ(ibv_memcpy_to_dm(dm, 200, in, 4), EFAULT);
	CHECK_EQ(ibv_memcpy_to_dm(dm, 204, in, 0), EFAULT);
	CHECK_EQ(ibv_memcpy_from_dm(out, dm, UINT64_MAX - 3, 8), EFAULT);
	CHECK_EQ(ibv_free_dm(dm), 0);
	side_close(&a);
}

TEST(registering)
{
	struct ibv_dm *dm;
	struct ibv_mr *mr;

	side_open(&a, 0);
	side_open(&b, 1);
	dm = alloc(a.ctx, 1000);
	CHECK(dm);
	CHECK(mr_refused(reg(dm, 0, 1000, IBV_ACCESS_LOCAL_WRITE)));
	CHECK(mr_refused(reg(dm, 0, 1000, ACCESS | IBV_ACCESS_MW_BIND)));
	CHECK(mr_refused(reg(dm, 0, 1000, ACCESS | IBV_ACCESS_ON_DEMAND)));
	CHECK(mr_refused(reg(dm, 0, 1000, IBV_ACCESS_ZERO_BASED | IBV_ACCESS_REMOTE_WRITE)));
	CHECK(mr_refused(reg(dm, 0, 1001, ACCESS)));
	CHECK(mr_refused(reg(dm, 1000, 1, ACCESS)));
	CHECK(mr_refused(reg(dm, 1001, 0, ACCESS)));
	CHECK(mr_refused(reg(dm, UINT64_MAX, 2, ACCESS)));
	/* Of another context's domain. */
	errno = 0;
	CHECK(mr_refused(ibv_reg_dm_mr(b.pd, dm, 0, 10, ACCESS)));
	mr = reg(dm, 8, 992, ACCESS | IBV_ACCESS_RELAXED_ORDERING | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE);
	CHECK(mr);
	CHECK(!mr->addr && mr->length == 992 && mr->pd == a.pd && mr->context == a.ctx);
	CHECK_EQ(ibv_free_dm(dm), EBUSY);
	CHECK(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, IBV_ACCESS_LOCAL_WRITE));
	CHECK_EQ(ibv_dereg_mr(mr), 0);
	CHECK_EQ(ibv_free_dm(dm), 0);
	side_close(&a);
	side_close(&b);
}

static int send_dm(struct ibv_mr *mr, uint64_t at, uint32_t len)
{
	/* The addresses from host memory, the rest from the device's: each piece has its own key. */
	struct ibv_sge sge[2] = { { (uintptr_t)a.buf, 12, a.mr->lkey }, { at, len, mr->lkey } };
	struct ibv_send_wr wr = { .wr_id = 5,
				  .sg_list = sge,
				  .num_sge = 2,
				  .opcode = IBV_WR_SEND,
				  .send_flags = IBV_SEND_SIGNALED },
			   *bad;

	memcpy(a.buf, frame, 12);
	return ibv_post_send(a.qp, &wr, &bad);
}

TEST(send_and_receive)
{
	uint8_t got[SIDE_BUF];
	struct ibv_sge sge = { 0 };
	struct ibv_recv_wr rwr = { .wr_id = 6, .sg_list = &sge, .num_sge = 1 }, *rbad;
	struct ibv_mr *mr, *inner, *reading;
	struct ibv_dm *dm;
	struct ibv_wc wc;
	uint32_t len;

	side_open(&a, 0);
	side_open(&b, 1);
	CHECK(flow_mac(b.qp, b.mac));
	CHECK(flow_mac(a.qp, a.mac));
	dm = alloc(a.ctx, 8192);
	mr = reg(dm, 0, 8192, ACCESS);
	/* Zero-based: its address 0 is the device's 1000. */
	inner = reg(dm, 1000, 2000, ACCESS);
	reading = reg(dm, 0, 8192, IBV_ACCESS_ZERO_BASED);
	CHECK(dm && mr && inner && reading);
	len = frame_udp4(frame, b.mac, a.mac, &udp, 1402);
	CHECK_EQ(len % 4, 0);
	CHECK_EQ(ibv_memcpy_to_dm(dm, 1000, frame + 12, len - 12), 0);
	for (uint32_t i = 0; i < 3; i++) {
		CHECK_EQ(side_post_recv(&b, i, i, SIDE_BUF), 0);
		CHECK_EQ(send_dm(i == 0 ? mr : i == 1 ? inner : reading, i == 1 ? 0 : 1000, len - 12), 0);
		CHECK_EQ(poll_one(a.scq).status, IBV_WC_SUCCESS);
		wc = poll_one(b.rcq);
		CHECK_EQ(wc.byte_len, len);
		CHECK_EQ(memcmp(b.buf + i * SIDE_BUF, frame, len), 0);
	}
	/* Receives. */
	len = frame_udp4(frame, a.mac, b.mac, &udp, 1404);
	sge = (struct ibv_sge){ 100, 2000, mr->lkey };
	CHECK_EQ(ibv_post_recv(a.qp, &rwr, &rbad), 0);
	CHECK_EQ(side_send(&b, 1, frame, len, 0), 0);
	wc = poll_one(a.rcq);
	CHECK_EQ(wc.status, IBV_WC_SUCCESS);
	CHECK_EQ(wc.byte_len, len);
	CHECK_EQ(ibv_memcpy_from_dm(got, dm, 100, (len + 3) & ~3u), 0);
	CHECK_EQ(memcmp(got, frame, len), 0);
	/* Not into memory that may only be read; not beyond the region. */
	sge = (struct ibv_sge){ 100, 2000, reading->lkey };
	CHECK_EQ(ibv_post_recv(a.qp, &rwr, &rbad), 0);
	CHECK_EQ(side_send(&b, 1, frame, len, 0), 0);
	CHECK_EQ(poll_one(a.rcq).status, IBV_WC_LOC_PROT_ERR);
	CHECK_EQ(qp_to(a.qp, IBV_QPS_RESET), 0);
	qp_rts(a.qp);
	CHECK_EQ(send_dm(inner, 1000, 1001), 0);
	CHECK_EQ(poll_one(a.scq).status, IBV_WC_LOC_PROT_ERR);
	CHECK_EQ(ibv_dereg_mr(mr), 0);
	CHECK_EQ(ibv_dereg_mr(inner), 0);
	CHECK_EQ(ibv_free_dm(dm), EBUSY);
	CHECK_EQ(ibv_dereg_mr(reading), 0);
	CHECK_EQ(ibv_free_dm(dm), 0);
	CHECK_EQ(ibv_close_device(a.ctx), 0);
	CHECK_EQ(ibv_close_device(b.ctx), 0);
	free(a.buf);
	free(b.buf);
}

TEST(of_all_processes_together)
{
	int status, ready[2];
	char name[64], byte = 0;
	struct ibv_context *other;
	struct ibv_dm *dm;
	pid_t pid;

	CHECK_EQ(pipe(ready), 0);
	pid = fork();
	CHECK(pid >= 0);
	if (!pid) {
		other = open_port(0, "", name);
		if (!alloc(other, SIZE - 4096))
			_exit(1);
		CHECK_EQ(write(ready[1], &byte, 1), 1);
		pause();
		_exit(0);
	}
	CHECK_EQ(read(ready[0], &byte, 1), 1);
	side_open(&a, 0);
	CHECK(refused(alloc(a.ctx, 4097), ENOMEM));
	dm = alloc(a.ctx, 4096);
	CHECK(dm);
	/* Another port has memory of its own. */
	side_open(&b, 1);
	CHECK(alloc(b.ctx, SIZE));
	CHECK_EQ(ibv_close_device(b.ctx), 0);
	free(b.buf);
	side_open(&b, 1);
	CHECK(alloc(b.ctx, SIZE));
	CHECK_EQ(ibv_close_device(b.ctx), 0);
	free(b.buf);
	CHECK_EQ(kill(pid, SIGKILL), 0);
	CHECK_EQ(waitpid(pid, &status, 0), pid);
	CHECK(refused(alloc(a.ctx, SIZE), ENOMEM));
	CHECK(alloc(a.ctx, SIZE - 4096));
	CHECK(refused(alloc(a.ctx, 1), ENOMEM));
	/* Two contexts of one process count alike. */
	other = open_port(0, "", name);
	CHECK(refused(alloc(other, 1), ENOMEM));
	CHECK_EQ(ibv_free_dm(dm), 0);
	CHECK(alloc(other, 4096));
	CHECK_EQ(ibv_close_device(other), 0);
	CHECK_EQ(ibv_close_device(a.ctx), 0);
	free(a.buf);
	close(ready[0]);
	close(ready[1]);
}

TEST(size_is_the_ports)
{
	struct ibv_device_attr_ex ex;
	struct ibv_context *ctx;
	char name[64];

	ctx = open_port(7, ",dm=1024", name);
	CHECK_EQ(ibv_query_device_ex(ctx, NULL, &ex), 0);
	CHECK_EQ(ex.max_dm_size, 1024);
	CHECK(refused(alloc(ctx, 1025), EINVAL));
	CHECK(alloc(ctx, 1024));
	CHECK_EQ(ibv_close_device(ctx), 0);
	CHECK_EQ(softnic_device_add("x/0,dm=63", name, sizeof(name)), -EINVAL);
	CHECK_EQ(softnic_device_add("x/0,dm=67108865", name, sizeof(name)), -EINVAL);
	CHECK_EQ(softnic_device_add("x/0,dm=", name, sizeof(name)), -EINVAL);
}

TEST(fork_leaves_it_to_the_parent)
{
	uint8_t word[4] = { 1, 2, 3, 4 }, got[4];
	struct ibv_dm *dm;
	struct ibv_mr *mr;
	int status;
	pid_t pid;

	side_open(&a, 0);
	dm = alloc(a.ctx, SIZE - 4096);
	mr = reg(dm, 0, SIZE - 4096, ACCESS);
	CHECK(dm && mr);
	CHECK_EQ(ibv_memcpy_to_dm(dm, 0, word, 4), 0);
	pid = fork();
	CHECK(pid >= 0);
	if (!pid) {
		struct ibv_dm *more = alloc(a.ctx, 4096);
		bool ok = more && refused(alloc(a.ctx, 1), ENOMEM) && !ibv_memcpy_to_dm(more, 0, word, 4);

		/* It is the same memory. */
		ok = ok && !ibv_memcpy_from_dm(got, dm, 0, 4) && !memcmp(got, word, 4) && !ibv_memcpy_to_dm(dm, 4, word, 4);
		ok = ok && !reg(dm, 0, 64, ACCESS) && errno == ENODEV;
		/* What the parent has remains the parent's. */
		ok = ok && !ibv_dereg_mr(mr) && !ibv_free_dm(dm) && refused(alloc(a.ctx, 1), ENOMEM);
		ok = ok && !ibv_free_dm(more) && (more = alloc(a.ctx, 2048)) && !ibv_close_device(a.ctx);
		_exit(ok ? 0 : 1);
	}
	CHECK_EQ(waitpid(pid, &status, 0), pid);
	CHECK_EQ(status, 0);
	CHECK(refused(alloc(a.ctx, 4097), ENOMEM));
	CHECK_EQ(ibv_memcpy_from_dm(got, dm, 4, 4), 0);
	CHECK_EQ(memcmp(got, word, 4), 0);
	CHECK_EQ(ibv_dereg_mr(mr), 0);
	CHECK_EQ(ibv_free_dm(dm), 0);
	side_close(&a);
}

int main(int argc, char **argv)
{
	return test_main(argc, argv);
}
