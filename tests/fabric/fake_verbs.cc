// SPDX-License-Identifier: Apache-2.0
// Stands in for libibverbs and libmlx5, as far as DcGuest calls them: four devices, of which one is no ConnectX, one
// has no active port, one is on Ethernet and one on InfiniBand. It checks what a card would, and counts what is open.
// It is found under both libraries' names by LD_LIBRARY_PATH.
//
// KVERN_FAKE_VERBS names a call that is to fail, such as mlx5dv_create_qp; or "none": there are no devices.
#include <infiniband/mlx5dv.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <string_view>

// The header replaces these names by its own inline functions.
#undef ibv_get_device_list
#undef ibv_query_port
#undef ibv_reg_mr

namespace {

std::atomic<long> open_objects{0};
std::atomic<std::uint64_t> key{0};
std::atomic<int> reached{0};  // the states of the target that were reached, in order
std::array<ibv_device, 4> devices;
constexpr int rxe = 0, idle = 1, ethernet = 2, infiniband = 3;

bool fails(std::string_view call) {
    const char* const given = std::getenv("KVERN_FAKE_VERBS");
    if (given == nullptr || given != call) return false;
    errno = ENOMEM;
    return true;
}

template <class T>
T* made(T* one) {
    ++open_objects;
    return one;
}
template <class T>
int destroyed(T* one) {
    --open_objects;
    delete one;
    return 0;
}

int number_of(const ibv_context* context) {
    return static_cast<int>(context->device - devices.data());
}

ibv_gid_entry entry(std::initializer_list<int> last, int type, std::uint32_t index, std::uint8_t first = 0,
                    std::uint8_t second = 0) {
    ibv_gid_entry made{};
    made.gid.raw[0] = first;
    made.gid.raw[1] = second;
    auto at = std::size_t{16} - last.size();
    for (const int byte : last) made.gid.raw[at++] = static_cast<std::uint8_t>(byte);
    made.gid_index = index;
    made.port_num = 1;
    made.gid_type = static_cast<std::uint32_t>(type);
    return made;
}

}  // namespace

extern "C" {

// open: objects that were not given back; key: of the latest target; reached: 1 INIT, 2 RTR after it.
long kvern_fake_verbs(const char* what) {
    const std::string_view asked(what);
    return asked == "open" ? open_objects.load() : asked == "key" ? static_cast<long>(key.load()) : reached.load();
}

ibv_device** ibv_get_device_list(int* count) {
    const bool none = fails("none");
    *count = none ? 0 : static_cast<int>(devices.size());
    auto** const list = made(new ibv_device* [devices.size() + 1] {});
    for (std::size_t i = 0; !none && i < devices.size(); ++i) list[i] = &devices[i];
    return list;
}
void ibv_free_device_list(ibv_device** list) {
    --open_objects;
    delete[] list;
}
bool mlx5dv_is_supported(ibv_device* device) {
    return device != &devices[rxe];
}
ibv_context* ibv_open_device(ibv_device* device) {
    if (fails("ibv_open_device")) return nullptr;
    auto* const context = made(new ibv_context{});
    context->device = device;
    return context;
}
int ibv_close_device(ibv_context* context) {
    return destroyed(context);
}
int ibv_query_port(ibv_context* context, std::uint8_t number, _compat_ibv_port_attr* filled) {
    auto& port = *reinterpret_cast<ibv_port_attr*>(filled);
    if (number != 1) return EINVAL;
    const int device = number_of(context);
    port.state = device == idle ? IBV_PORT_DOWN : IBV_PORT_ACTIVE;
    port.active_mtu = device == infiniband ? IBV_MTU_4096 : IBV_MTU_1024;
    port.link_layer = device == infiniband ? IBV_LINK_LAYER_INFINIBAND : IBV_LINK_LAYER_ETHERNET;
    port.lid = device == infiniband ? 7 : 0;
    return 0;
}
ssize_t _ibv_query_gid_table(ibv_context* context, ibv_gid_entry* entries, std::size_t, std::uint32_t,
                             std::size_t size) {
    if (size != sizeof *entries) return -EINVAL;
    if (number_of(context) == infiniband) {
        entries[0] = entry({2, 0xc9, 3, 0, 0x12}, IBV_GID_TYPE_IB, 0, 0xfe, 0x80);
        return 1;
    }
    const int host = number_of(context) == idle ? 16 : 17;
    entries[0] = entry({0xff, 0xff, 192, 0, 2, host}, IBV_GID_TYPE_ROCE_V1, 0);
    entries[1] = entry({1}, IBV_GID_TYPE_ROCE_V2, 1, 0xfe, 0x80);
    entries[2] = entry({2}, IBV_GID_TYPE_ROCE_V2, 2, 0xfd, 0x00);
    entries[3] = entry({0xff, 0xff, 192, 0, 2, host}, IBV_GID_TYPE_ROCE_V2, 3);
    return 4;
}
ibv_pd* ibv_alloc_pd(ibv_context* context) {
    if (fails("ibv_alloc_pd")) return nullptr;
    auto* const domain = made(new ibv_pd{});
    domain->context = context;
    return domain;
}
int ibv_dealloc_pd(ibv_pd* domain) {
    return destroyed(domain);
}
ibv_cq* ibv_create_cq(ibv_context*, int, void*, ibv_comp_channel*, int) {
    return fails("ibv_create_cq") ? nullptr : made(new ibv_cq{});
}
int ibv_destroy_cq(ibv_cq* queue) {
    return destroyed(queue);
}
ibv_srq* ibv_create_srq(ibv_pd*, ibv_srq_init_attr*) {
    return fails("ibv_create_srq") ? nullptr : made(new ibv_srq{});
}
int ibv_destroy_srq(ibv_srq* receives) {
    return destroyed(receives);
}
ibv_qp* mlx5dv_create_qp(ibv_context* context, ibv_qp_init_attr_ex* wanted, mlx5dv_qp_init_attr* kind) {
    if (fails("mlx5dv_create_qp")) return nullptr;
    const bool whole = wanted->qp_type == IBV_QPT_DRIVER && wanted->recv_cq != nullptr && wanted->srq != nullptr &&
                       wanted->comp_mask == IBV_QP_INIT_ATTR_PD && wanted->pd != nullptr;
    const bool target =
        kind->comp_mask == MLX5DV_QP_INIT_ATTR_MASK_DC && kind->dc_init_attr.dc_type == MLX5DV_DCTYPE_DCT;
    errno = EINVAL;
    if (!whole || !target) return nullptr;
    key = kind->dc_init_attr.dct_access_key;
    reached = 0;
    auto* const created = made(new ibv_qp{});
    created->context = context;
    return created;
}
int ibv_modify_qp(ibv_qp* target, ibv_qp_attr* wanted, int which) {
    if (fails("ibv_modify_qp")) return ENOMEM;
    const int remote = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;
    const int to_init = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
    const int to_ready = IBV_QP_STATE | IBV_QP_PATH_MTU | IBV_QP_AV | IBV_QP_MIN_RNR_TIMER;
    if (reached == 0 && wanted->qp_state == IBV_QPS_INIT && which == to_init && wanted->port_num == 1) {
        reached = (static_cast<int>(wanted->qp_access_flags) & remote) == remote ? 1 : 0;
        return reached == 1 ? 0 : EINVAL;
    }
    if (reached != 1 || wanted->qp_state != IBV_QPS_RTR || which != to_ready) return EINVAL;
    if (wanted->path_mtu == 0 || wanted->ah_attr.port_num != 1) return EINVAL;
    const bool roce = number_of(target->context) == ethernet;
    if (wanted->ah_attr.is_global != (roce ? 1 : 0)) return EINVAL;
    if (roce && wanted->ah_attr.grh.sgid_index == 0) return EINVAL;  // that is RoCE v1's
    reached = 2;
    target->qp_num = 0x1f7;  // only a target that is ready has its number
    return 0;
}
int ibv_destroy_qp(ibv_qp* target) {
    return destroyed(target);
}
ibv_mr* ibv_reg_mr_iova2(ibv_pd* domain, void* begin, std::size_t size, std::uint64_t as, unsigned access) {
    static std::atomic<std::uint32_t> keys{0x1a2b3c00};
    if (fails("ibv_reg_mr")) return nullptr;
    errno = EINVAL;
    if (as != reinterpret_cast<std::uintptr_t>(begin) || (access & IBV_ACCESS_RELAXED_ORDERING) == 0) return nullptr;
    auto* const registration = made(new ibv_mr{});
    registration->pd = domain;
    registration->addr = begin;
    registration->length = size;
    registration->rkey = ++keys;
    return registration;
}
int ibv_dereg_mr(ibv_mr* registration) {
    return destroyed(registration);
}
}
