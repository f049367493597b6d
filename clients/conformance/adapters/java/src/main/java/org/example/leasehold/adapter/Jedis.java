package org.example.leasehold.adapter;

import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import java.io.ByteArrayInputStream;
import java.net.URI;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.KeyFactory;
import java.security.KeyStore;
import java.security.cert.Certificate;
import java.security.cert.CertificateFactory;
import java.security.spec.PKCS8EncodedKeySpec;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import javax.net.ssl.KeyManager;
import javax.net.ssl.KeyManagerFactory;
import javax.net.ssl.SSLContext;
import javax.net.ssl.TrustManager;
import javax.net.ssl.TrustManagerFactory;
import org.example.leasehold.Leasehold;
import org.example.leasehold.Settings;
import org.example.leasehold.jedis.JedisLeasehold;
import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.HostAndPort;
import redis.clients.jedis.JedisClientConfig;
import redis.clients.jedis.RedisClient;
import redis.clients.jedis.RedisClusterClient;
import redis.clients.jedis.RedisSentinelClient;
import redis.clients.jedis.UnifiedJedis;
import redis.clients.jedis.util.JedisURIHelper;

/** The package over Jedis. */
final class Jedis implements Adapter.Library {
    private final List<UnifiedJedis> clients = new ArrayList<>();

    @Override
    public Leasehold open(JsonObject request, Settings settings) throws Exception {
        if (request.has("cluster")) {
            // The first request tells what is wrong.
            System.setProperty(RedisClusterClient.INIT_NO_ERROR_PROPERTY, "true");
            JsonArray urls = request.getAsJsonArray("cluster");
            JedisClientConfig config = config(request, URI.create(urls.get(0).getAsString()));
            return JedisLeasehold.over(kept(RedisClusterClient.builder().nodes(places(urls)).clientConfig(config).build()), settings);
        }
        if (request.has("sentinel")) {
            JsonObject sentinel = request.getAsJsonObject("sentinel");
            Set<HostAndPort> places = places(sentinel.getAsJsonArray("urls"));
            var builder = RedisSentinelClient.builder().masterName(Adapter.text(sentinel, "service")).sentinels(places);
            return JedisLeasehold.over(kept(builder.build()), settings);
        }
        if (request.has("quorum")) {
            List<RedisClient> all = new ArrayList<>();
            for (JsonElement url : request.getAsJsonArray("quorum")) {
                all.add(single(request, url.getAsString()));
            }
            return JedisLeasehold.quorum(all, settings);
        }
        return JedisLeasehold.over(single(request, Adapter.text(request, "url")), settings);
    }

    private <T extends UnifiedJedis> T kept(T client) {
        clients.add(client);
        return client;
    }

    private RedisClient single(JsonObject request, String url) throws Exception {
        URI uri = URI.create(url);
        RedisClient client = kept(RedisClient.builder().hostAndPort(place(uri)).clientConfig(config(request, uri)).build());
        try {
            // The first connection of a JVM loads classes, which takes longer than some scenarios last.
            client.ping();
            client.getPool().clear();
        } catch (RuntimeException e) {
            // The first request tells what is wrong.
        }
        return client;
    }

    private static HostAndPort place(URI uri) {
        return new HostAndPort(uri.getHost(), uri.getPort());
    }

    private static Set<HostAndPort> places(JsonArray urls) {
        Set<HostAndPort> places = new HashSet<>();
        urls.forEach(url -> places.add(place(URI.create(url.getAsString()))));
        return places;
    }

    private static JedisClientConfig config(JsonObject request, URI uri) throws Exception {
        DefaultJedisClientConfig.Builder config = DefaultJedisClientConfig.builder()
                .user(JedisURIHelper.getUser(uri))
                .password(JedisURIHelper.getPassword(uri))
                .database(JedisURIHelper.getDBIndex(uri))
                .ssl(JedisURIHelper.isRedisSSLScheme(uri));
        if (Adapter.has(request, "ca") || Adapter.has(request, "certificate")) {
            config.sslSocketFactory(ssl(request).getSocketFactory());
        }
        return config.build();
    }

    private static SSLContext ssl(JsonObject request) throws Exception {
        KeyManager[] own = null;
        TrustManager[] trusted = null;
        if (Adapter.has(request, "certificate")) {
            String pem = Files.readString(Path.of(Adapter.text(request, "key"))).replaceAll("-----.*-----|\\s", "");
            var key = KeyFactory.getInstance("EC").generatePrivate(new PKCS8EncodedKeySpec(Base64.getDecoder().decode(pem)));
            KeyStore store = store();
            store.setKeyEntry("own", key, new char[0], new Certificate[] {certificate(Adapter.text(request, "certificate"))});
            KeyManagerFactory keys = KeyManagerFactory.getInstance(KeyManagerFactory.getDefaultAlgorithm());
            keys.init(store, new char[0]);
            own = keys.getKeyManagers();
        }
        if (Adapter.has(request, "ca")) {
            KeyStore store = store();
            store.setCertificateEntry("ca", certificate(Adapter.text(request, "ca")));
            TrustManagerFactory trust = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
            trust.init(store);
            trusted = trust.getTrustManagers();
        }
        SSLContext context = SSLContext.getInstance("TLS");
        context.init(own, trusted, null);
        return context;
    }

    private static KeyStore store() throws Exception {
        KeyStore store = KeyStore.getInstance("PKCS12");
        store.load(null);
        return store;
    }

    private static Certificate certificate(String file) throws Exception {
        return CertificateFactory.getInstance("X.509").generateCertificate(new ByteArrayInputStream(Files.readAllBytes(Path.of(file))));
    }

    @Override
    public void close() {
        clients.forEach(UnifiedJedis::close);
    }
}
