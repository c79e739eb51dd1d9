// SPDX-License-Identifier: Apache-2.0
#include "store/s3/way.h"

#include <netdb.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>

#include "base/fd.h"
#include "fabric/cuobject_guest.h"
#include "fabric/dc_guest.h"
#include "fabric/local_guest.h"
#include "fabric/ofi_endpoint.h"
#include "fabric/ofi_guest.h"
#include "store/s3/endpoint.h"

namespace kvern {
namespace {

using Rdma = S3Options::Rdma;

constexpr std::string_view probe_key = ".kvern-probe/fabric";

tl::unexpected<Error> none(std::string why) {
    return fail(ErrorCode::unavailable, std::move(why));
}

// This host's address as a server sees it, in digits; empty where the system does not tell.
std::string address_towards(const http::HostPort& server) {
    addrinfo hints{};
    hints.ai_socktype = SOCK_DGRAM;
    addrinfo* found = nullptr;
    if (getaddrinfo(server.host.c_str(), server.port.c_str(), &hints, &found) != 0) return {};
    const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owned(found, &freeaddrinfo);
    const Fd socket(::socket(found->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));  // connecting it sends nothing
    if (!socket || connect(socket.get(), found->ai_addr, found->ai_addrlen) != 0) return {};
    sockaddr_storage own{};
    socklen_t size = sizeof own;
    std::array<char, NI_MAXHOST> text{};
    auto* const address = reinterpret_cast<sockaddr*>(&own);
    if (getsockname(socket.get(), address, &size) != 0) return {};
    if (getnameinfo(address, size, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST) != 0) return {};
    return text.data();
}

Result<std::shared_ptr<fabric::Guest>> local_guest(const S3Ways& ways) {
    if (ways.socket.empty()) return none("it offers none (kvern serve --rdma local)");
    // A path may be on a volume that two network namespaces share.
    const bool abstract = ways.socket.front() == '@';
    if (abstract && ways.host != fabric::local_host_id()) return none("it runs on another host");
    auto guest = fabric::LocalGuest::connect(ways.socket);
    if (!guest) return tl::unexpected(guest.error());
    return std::shared_ptr<fabric::Guest>(std::move(*guest));
}

std::string fabric_address(const S3Endpoint& endpoint) {
    const auto& given = endpoint.options().fabric_address;
    return given.empty() ? address_towards(endpoint.place().address) : given;
}

// The first of the providers that can be opened here.
Result<std::shared_ptr<fabric::Guest>> ofi_guest(const S3Endpoint& endpoint, const std::vector<std::string>& offered) {
    const auto& options = endpoint.options();
    const auto address = fabric_address(endpoint);
    auto why = none("it offers no provider of libfabric that is used here (kvern serve --rdma ofi)");
    for (const auto& provider : offered) {
        if (!options.fabric_provider.empty() && provider != options.fabric_provider) continue;
        auto guest = fabric::OfiGuest::shared(provider, address);
        if (guest) return std::shared_ptr<fabric::Guest>(std::move(*guest));
        why = tl::unexpected(guest.error());
    }
    return why;
}

std::vector<std::string> all_ofi_providers() {
    return {fabric::ofi_providers.begin(), fabric::ofi_providers.end()};
}

// What may be used unasked: what is faster than HTTP for certain.
Result<std::shared_ptr<fabric::Guest>> best_guest(const S3Endpoint& endpoint, const S3Ways& ways) {
    auto local = local_guest(ways);
    const std::string verbs(fabric::ofi_providers.front());
    const auto& offered = ways.ofi_providers;
    if (local || std::find(offered.begin(), offered.end(), verbs) == offered.end()) return local;
    return ofi_guest(endpoint, {verbs});
}

template <class Opened>
Result<S3Way> way_by(Result<std::shared_ptr<Opened>> guest, const fabric::Dialect* dialect) {
    if (!guest) return tl::unexpected(guest.error());
    return S3Way{std::move(*guest), dialect};
}

}  // namespace

http::Task<Result<S3Way>> s3_find_way(S3Endpoint& endpoint) {
    const auto& options = endpoint.options();
    // Of servers that have no other way, and no kvern server is among them: nobody is asked.
    if (options.rdma == Rdma::cuobject) co_return way_by(fabric::CuObjectGuest::shared(), options.dialect);
    if (options.rdma == Rdma::dc) co_return way_by(fabric::DcGuest::open(fabric_address(endpoint)), options.dialect);
    S3Request question;
    question.query.push_back({"kvern-fabric", ""});
    auto answer = co_await endpoint.call(question, endpoint.deadline());
    const auto ways = answer.good() ? parse_ways(answer.http.text) : none("it does not answer how");
    if (!ways && options.rdma == Rdma::ofi) {  // no kvern server
        co_return way_by(ofi_guest(endpoint, all_ofi_providers()), options.dialect);
    }
    if (!ways) co_return tl::unexpected(ways.error());
    switch (options.rdma) {
        case Rdma::local:
            co_return way_by(local_guest(*ways), &fabric::aws_dialect);
        case Rdma::ofi:
            co_return way_by(ofi_guest(endpoint, ways->ofi_providers), &fabric::aws_dialect);
        default:
            co_return way_by(best_guest(endpoint, *ways), &fabric::aws_dialect);
    }
}

http::Task<Result<const fabric::Dialect*>> s3_find_dialect(S3Endpoint& endpoint, std::string token) {
    S3Request probe;
    probe.method = "HEAD";
    probe.key = endpoint.s3_key(probe_key);
    probe.headers.emplace_back(fabric::aws_dialect.token, std::move(token));
    const auto answer = co_await endpoint.call(probe, endpoint.deadline());
    if (answer.http.head.find(fabric::aws_dialect.reply)) co_return &fabric::aws_dialect;
    co_return none("it does not say that it knows tokens; say dialect=dell if it is an ObjectScale, or dialect=aws");
}

}  // namespace kvern
