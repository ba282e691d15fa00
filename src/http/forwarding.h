// forwarding: which fields travel on, and what a proxy adds (RFC 9110, 7.6).
#pragma once

#include "http/message.h"

namespace oncekey {

// Who we are to the servers around us.
struct ProxyIdentity {
  // Our name in Via, unique to this process, so that a request that comes back to it is known for a loop.
  std::string pseudonym;
  // Peers whose X-Forwarded-* fields are trusted and appended to; those of all other peers are replaced.
  std::vector<std::string> trusted_proxies;
};

struct ForwardedFrom {
  std::string_view peer;
  bool secure = false;
};

// True when a request has passed through this process before.
bool loops(const ProxyIdentity& self, const Headers& headers);

// Fields that concern one connection only, or that a proxy must not pass on.
bool is_hop_by_hop(std::string_view name);

// A field of this request that Connection names and that is no hop-by-hop field. RFC 9110 7.6.1 has a proxy remove it;
// a client could remove so what a proxy in front has added (`Connection: X-Authenticated-User`), so that such a request
// is to be refused. Names of fields that are not there change nothing.
std::optional<std::string_view> stripped_by_connection(const Headers& headers);

// The end-to-end fields among those of a response, in order, without Content-Length: the sender of the body sets that.
Headers end_to_end(Headers received);

// The client asks to go on as WebSocket (RFC 6455, 4.1): a GET of HTTP/1.1 without a body. Other protocols are not
// carried: h2c would bring requests past the routes.
bool asks_for_websocket(const RequestHead& head);
// A 101 that switches to WebSocket and to nothing else.
bool grants_websocket(const ResponseHead& head);
// The two fields that go with either. They concern one connection, so that neither is forwarded.
void add_websocket_fields(Headers& headers);

// A request in the form in which it goes upstream.
struct UpstreamRequest {
  std::string method;
  std::string target;
  Headers headers;        // without framing
  bool websocket = false; // asks for it: a 101 may come
};

// The end-to-end fields of a request, and X-Forwarded-*. Fields named in `replaced` are left out, for the caller to add
// its own. Oncekey-* fields are ours to send: a client's are left out.
Headers fields_without_via(const RequestHead& head, const ForwardedFrom& from, const ProxyIdentity& self,
                           const std::vector<std::string_view>& replaced);
// Rebuilds the request from its parsed form, with these fields and Via.
UpstreamRequest forward(const RequestHead& head, const ForwardedFrom& from, const ProxyIdentity& self,
                        const std::vector<std::string_view>& replaced);

} // namespace oncekey
