// SPDX-License-Identifier: Apache-2.0
#include "server/windows.h"

#include <algorithm>

#include "base/log.h"
#include "fabric/dialect.h"
#include "server/site.h"

namespace kvern::server {

using http::refuse;
using http::S3Code;
using http::S3Result;

using fabric::aws_dialect;

namespace {

// Declined before anything is looked up: a token could name any place of this server's networks.
WindowAsk ask_for_mover(const Site& site, Request& request, const fabric::Token& token) {
    const auto mover = std::find_if(site.movers.begin(), site.movers.end(),
                                    [&](const auto& one) { return one->provider() == token.provider; });
    if (mover == site.movers.end()) return WindowAsk::declined;
    const auto& peer = request.exchange.peer();
    const auto from = http::parse_host_port(peer);
    if (!site.networks.permit(token.endpoint, from ? from->host : peer)) {
        log(LogLevel::warning, "server",
            "a token of a request from " + peer + " names another network (--fabric-networks)");
        return WindowAsk::declined;
    }
    request.window.emplace(**mover, token);
    return WindowAsk::granted;
}

}  // namespace

S3Result<WindowAsk> ask_for_window(const Site& site, Request& request) {
    const auto text = request.header(aws_dialect.token);
    if (!text) {
        const bool foreign = std::any_of(fabric::foreign_token_headers.begin(), fabric::foreign_token_headers.end(),
                                         [&](std::string_view name) { return request.header(name).has_value(); });
        return foreign ? WindowAsk::foreign : WindowAsk::none;
    }
    const auto token = fabric::parse_token(*text);
    if (!token && token.error().code == ErrorCode::not_supported) return WindowAsk::declined;
    if (!token) return refuse(S3Code::invalid_request, std::string(aws_dialect.token) + ": " + token.error().message);
    if (token->kind == fabric::TokenKind::ofi) return ask_for_mover(site, request, *token);
    if (token->kind != fabric::TokenKind::local || !site.windows) return WindowAsk::declined;
    auto span = site.windows->find(*token);
    if (!span && span.error().code == ErrorCode::unavailable) return WindowAsk::declined;
    if (!span) return refuse(S3Code::invalid_request, std::string(aws_dialect.token) + ": " + span.error().message);
    request.window.emplace(std::move(*span));
    return WindowAsk::granted;
}

S3Result<> take_window(const Site& site, Request& request) {
    const auto ask = ask_for_window(site, request);
    if (!ask) return tl::unexpected(ask.error());
    const auto& head = request.exchange.request();
    const bool empty = !head.chunked && head.content_length.value_or(0) == 0;
    if (*ask == WindowAsk::none || (*ask == WindowAsk::foreign && !empty)) return {};
    if (*ask == WindowAsk::foreign) {
        return refuse(S3Code::invalid_request,
                      "The body is said to be in memory that this server does not know how to reach: send it");
    }
    if (*ask == WindowAsk::granted && empty) return {};
    request.window.reset();
    if (!empty) {  // it came along all the same
        decline_window(request);
        return {};
    }
    decline_window(request);
    return refuse(S3Code::not_implemented, "The memory that the token names can't be reached from here: send the body");
}

void add_window_reply(http::AnswerHead& answer, unsigned status, std::uint64_t moved_bytes) {
    answer.add(aws_dialect.reply, std::to_string(status)).add(aws_dialect.moved, std::to_string(moved_bytes));
}

void decline_window(Request& request) {
    request.exchange.add_to_answer(std::string(aws_dialect.reply) + ": " + std::string(fabric::declined) + "\r\n");
}

}  // namespace kvern::server
