// Sends requests over HTTP/2 and prints what it got, one JSON object per line. Arguments: base URL, file of the
// authority, requests.

import java.io.FileInputStream;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse;
import java.net.http.HttpResponse.BodyHandlers;
import java.security.KeyStore;
import java.security.cert.CertificateFactory;
import javax.net.ssl.SSLContext;
import javax.net.ssl.TrustManagerFactory;

public class Client {
  public static void main(String[] arguments) throws Exception {
    HttpClient client = HttpClient.newBuilder().sslContext(trusting(arguments[1])).version(HttpClient.Version.HTTP_2).build();
    for (String text : arguments[2].split(",")) {
      String[] fields = text.split(" ");
      int size = Integer.parseInt(fields[2]);
      HttpRequest request = HttpRequest.newBuilder(URI.create(arguments[0] + fields[1]))
          .method(fields[0], size == 0 ? BodyPublishers.noBody() : BodyPublishers.ofByteArray(new byte[size]))
          .build();
      System.out.println("{\"request\":\"" + text + "\"," + send(client, request) + "}");
    }
  }

  static String send(HttpClient client, HttpRequest request) {
    try {
      HttpResponse<byte[]> response = client.send(request, BodyHandlers.ofByteArray());
      int version = response.version() == HttpClient.Version.HTTP_2 ? 2 : 1;
      return "\"version\":" + version + ",\"status\":" + response.statusCode() + ",\"bytes\":" + response.body().length;
    } catch (Exception error) {
      return "\"error\":\"" + error.toString().replaceAll("[\"\\\\]", "'") + "\"";
    }
  }

  static SSLContext trusting(String file) throws Exception {
    KeyStore store = KeyStore.getInstance(KeyStore.getDefaultType());
    store.load(null, null);
    try (FileInputStream pem = new FileInputStream(file)) {
      store.setCertificateEntry("authority", CertificateFactory.getInstance("X.509").generateCertificate(pem));
    }
    TrustManagerFactory managers = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
    managers.init(store);
    SSLContext context = SSLContext.getInstance("TLS");
    context.init(null, managers.getTrustManagers(), null);
    return context;
  }
}
